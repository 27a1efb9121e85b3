"""Law 11. Asking for maps never changes the output, and a map times the values reproduces it.

Maps are shown before dropout, each head by itself, in every form.
"""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.seq2seq import Config, EncoderDecoder, beam
from laws.ask import ask, layer_masks, remember, right, right_layer
from laws.given import draw
from laws.table import Case, cases, every

AXES = every(dtype=("float64",), mode=("eval", "train"))
FUNCTIONS = {**AXES, "door": ("function",), "form": ("projected",), "kept": ("fresh",)}


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_function(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    before = ask(case, given)
    weights = xa.attention_weights(
        given.leaves["query"], given.leaves["key"], **given.options, owner=given.owner,
        lengths=given.lengths, softcap=given.softcap,
    )  # fmt: skip
    assert torch.equal(ask(case, given), before)
    exact = right(given)
    torch.testing.assert_close(weights, exact.weights, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(before, exact.value, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("case", cases(**{**AXES, "door": ("layer",)}), ids=str)
def test_layer(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    layer = given.layer
    assert layer is not None
    layer.dropout = 0.5
    memory, query, masks = remember(case, given), given.leaves["query"], layer_masks(given)
    layer.kernel = "auto" if case.kernel in ("fused", "native") else case.kernel
    before = layer.eval()(query, memory, **masks)
    shown = layer.train(case.mode == "train").weights(query, memory, **masks)
    exact = right_layer(given)[1].weights
    torch.testing.assert_close(shown, exact, atol=1e-11, rtol=1e-11)
    assert torch.equal(layer.eval()(query, memory, **masks), before)
    some = [given.sizes.h - 1, 0]
    picked = layer.weights(query, memory, heads=some, **masks)
    torch.testing.assert_close(picked, exact[:, some], atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_model_shows_what_its_heads_read(norm: str) -> None:
    torch.manual_seed(1)
    config = Config(
        vocabulary=13, width=12, heads=3, feed_forward=17, decoder_layers=2, norm=norm,
        alignment=(1, 2),
    )  # fmt: skip
    model = EncoderDecoder(config).double().eval()
    source, lengths, target = torch.randint(3, 13, (2, 11)), [11, 4], torch.randint(3, 13, (2, 7))
    memory = model.encode(source, lengths)
    rows, maps = model.decode_aligned(target, memory)
    assert torch.equal(rows, model.decode(target, memory))
    seen: list[torch.Tensor] = []
    layer = model.decoder[1].cross_attention
    handle = layer.query_projection.register_forward_hook(
        lambda module, given, out: seen.append(out)
    )
    model.decode(target, memory)
    handle.remove()
    query = seen[0].unflatten(-1, (3, 4)).transpose(1, 2)  # [b, t, c] -> [b, h, t, d]
    key = memory.contents[layer.number].key
    wanted = xa.attention_weights(query, key, lengths=lengths)[:, 2]
    torch.testing.assert_close(maps, wanted, atol=1e-12, rtol=1e-12)


def test_alignment_row_i_is_what_token_i_read() -> None:
    torch.manual_seed(2)
    model = EncoderDecoder(Config(vocabulary=7, width=12, heads=3, feed_forward=16)).double().eval()
    source, lengths = torch.randint(3, 7, (3, 7)), [7, 3, 5]
    plain = beam(model, source, lengths)
    for row, found in enumerate(beam(model, source, lengths, align=True)):
        best = found[0]
        assert best.tokens == plain[row][0].tokens
        tokens = torch.tensor([[model.config.begin, *best.tokens]])
        memory = model.encode(source[row : row + 1, : lengths[row]])
        maps = model.decode_aligned(tokens, memory)[1][0, 1:]  # begin read something too
        torch.testing.assert_close(best.alignment, maps, atol=1e-11, rtol=1e-11)
