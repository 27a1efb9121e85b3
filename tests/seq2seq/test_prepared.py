"""A prepared decoder gives what the model gives, for as long as the model is what it was."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from crossattention.seq2seq import BeamOptions, Config, EncoderDecoder, beam, greedy, sample
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.seq2seq.prepared import Prepared, prepared
from seq2seq.models import sources


def built(norm: str = "pre", positions: str = "sinusoidal", seed: int = 0) -> EncoderDecoder:
    torch.manual_seed(seed)
    config = Config(
        vocabulary=211, width=12, heads=3, feed_forward=16, encoder_layers=2, decoder_layers=2,
        norm=norm, positions=positions, max_length=32,
    )  # fmt: skip
    model = EncoderDecoder(config).eval()
    with torch.no_grad():  # biases and norms begin as zeros and ones: let each count
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("lengths", [None, [7, 3, 5], [7, 0, 2]], ids=["all", "some", "none"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.inference_mode()
def test_steps_equal_the_models(norm: str, positions: str, lengths: list[int] | None) -> None:
    model = built(norm, positions)
    decoder, shown = Prepared(model), ((0, 2), (0, 1), (1, 0))
    memory = model.encode(torch.randint(3, 211, (3, 7)), lengths, form="projected").shared_by(2)
    state, wanted = decoder.start(memory, capacity=2), model.start(memory)
    for step in range(9):
        tokens = torch.randint(3, 211, (memory.sequences, 1))
        rows, state, maps = decoder.step(tokens, memory, state, shown)
        right, wanted, right_maps = model.step(tokens, memory, wanted, shown)
        torch.testing.assert_close(rows, right, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(maps, right_maps, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(decoder.logits(rows), model.logits(right), atol=1e-5, rtol=1e-5)
        index = torch.tensor([1, 1, 2, 0, 4, 5])[: memory.sequences].clamp(max=3)
        if step == 3:  # a sentence leaves
            index = torch.tensor([5, 4, 0, 0])
            memory = memory.select(index).compact()
        state, wanted = state.select(index), wanted.select(index)


@pytest.mark.parametrize("lengths", [[7, 7, 7], [7, 3, 5], [7, 0, 2]], ids=["all", "some", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.inference_mode()
def test_the_encoder_equals_the_models(norm: str, lengths: list[int]) -> None:
    model, tokens = built(norm), torch.randint(3, 211, (3, 7))
    rows = Prepared(model).encode(model.embedding(tokens), torch.tensor(lengths))
    found = model.remember(rows, lengths, form="projected")
    wanted = model.encode(tokens, lengths, form="projected")
    for number, content in wanted.contents.items():
        for ours, right in zip(
            (found.contents[number].key, found.contents[number].value),
            (content.key, content.value),
            strict=True,
        ):
            torch.testing.assert_close(ours, right, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [(0, 3), (2, 0)])
def test_sources_without_tokens(size: tuple[int, int]) -> None:
    source = torch.zeros(size, dtype=torch.int64)
    found = greedy(built(), source, [0] * size[0], max_length=3)
    assert len(found) == size[0]


def searched(model: EncoderDecoder, align: bool = True) -> list[Hypothesis]:
    source, lengths = sources([9, 4, 7, 1], vocabulary=211)
    found = greedy(model, source, lengths, align=align)
    for options in (BeamOptions(3, nbest=2), BeamOptions(2, early_stopping=False)):
        found += [x for each in beam(model, source, lengths, options, align=align) for x in each]
    drawn = sample(model, source, lengths, generator=torch.Generator().manual_seed(1), align=align)
    return found + [x for each in drawn for x in each]


def assert_same(ours: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [each.tokens for each in ours] == [each.tokens for each in wanted]
    for one, other in zip(ours, wanted, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        if one.alignment is not None and other.alignment is not None:
            torch.testing.assert_close(one.alignment, other.alignment, atol=1e-5, rtol=1e-5)


def as_it_is(model: EncoderDecoder) -> list[Hypothesis]:
    """Search with a model that is watched, and so is not prepared."""
    handle = model.decoder[0].feed_forward.register_forward_hook(lambda *_: None)
    try:
        return searched(model)
    finally:
        handle.remove()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_searches_find_the_same(norm: str) -> None:
    model = built(norm)
    with torch.inference_mode():
        assert prepared(model) is prepared(model) is not None
    assert_same(searched(model), as_it_is(model))
    assert all(each.alignment is None for each in searched(model, align=False))


def write(model: EncoderDecoder) -> None:
    with torch.no_grad():
        model.decoder[1].feed_forward.expand.weight.neg_()


def replace(model: EncoderDecoder) -> None:
    torch.manual_seed(9)
    model.decoder[0].self_attention.projection = nn.Linear(12, 36)


def write_in_the_encoder(model: EncoderDecoder) -> None:
    with torch.no_grad():
        model.encoder[1].feed_forward.expand.weight.neg_()


def soften(model: EncoderDecoder) -> None:
    model.decoder[0].self_attention.scale = 0.01


def activate(model: EncoderDecoder) -> None:
    model.decoder[0].feed_forward.activation = nn.GELU()


def loosen(model: EncoderDecoder) -> None:
    model.decoder[0].around_feed.norm.eps = 10.0


def load(model: EncoderDecoder) -> None:
    model.load_state_dict(built(seed=5).state_dict(), assign=True)


@pytest.mark.parametrize(
    "change", [write, write_in_the_encoder, replace, soften, activate, loosen, load]
)
def test_a_change_of_the_model_is_seen(change: Callable[[EncoderDecoder], None]) -> None:
    model = built()
    before = searched(model)
    change(model)
    after, wanted = searched(model), as_it_is(model)
    assert_same(after, wanted)
    assert [each.tokens for each in after] != [each.tokens for each in before]


class Louder(nn.Linear):
    """A projection of a class of its own."""

    def forward(self, rows: Tensor) -> Tensor:
        return 2 * super().forward(rows)


def adapt(model: EncoderDecoder) -> None:
    model.decoder[0].cross_attention.query_projection = Louder(12, 12)


def drop(model: EncoderDecoder) -> None:
    model.decoder[0].around_self.dropout.train()


def hook(model: EncoderDecoder) -> None:
    model.encoder[0].feed_forward.register_forward_pre_hook(lambda *_: None)


def name_in_the_encoder(model: EncoderDecoder) -> None:
    model.encoder[1].self_attention.kernel = "reference"


def cap(model: EncoderDecoder) -> None:
    model.decoder[0].cross_attention.softcap = 2.0


def name(model: EncoderDecoder) -> None:
    model.decoder[0].cross_attention.kernel = "reference"


@pytest.mark.parametrize(
    "change",
    [
        adapt,
        drop,
        hook,
        cap,
        name,
        name_in_the_encoder,
        activate,
        lambda m: m.double(),
    ],
)
@torch.inference_mode()
def test_what_is_not_known_in_every_part_is_not_prepared(
    change: Callable[[EncoderDecoder], None],
) -> None:
    model = built()
    assert prepared(model) is not None
    with torch.inference_mode(False):
        change(model)
    assert prepared(model) is None


@torch.inference_mode()
def test_nothing_is_prepared_where_torch_would_record_or_round() -> None:
    model = built()
    with torch.inference_mode(False):
        assert prepared(model) is None
    with torch.autocast("cpu"):
        assert prepared(model) is None


def test_two_searches_in_turns_do_not_meet() -> None:
    model, (source, lengths) = built(), sources([9, 4, 7, 5], vocabulary=211)
    with torch.inference_mode():
        decoder = prepared(model)
        assert decoder is not None
        memories = [
            model.encode(source[at : at + 2], lengths[at : at + 2], form="projected")
            for at in (0, 2)
        ]
        states = [decoder.start(memory, capacity=1) for memory in memories]
        tokens, together, apart = torch.randint(3, 211, (2, 1)), [], []
        for _ in range(3):
            for at, memory in enumerate(memories):
                rows, states[at], _ = decoder.step(tokens, memory, states[at])
                together.append(rows)
        for memory in memories:
            state = decoder.start(memory, capacity=1)
            for _ in range(3):
                rows, state, _ = decoder.step(tokens, memory, state)
                apart.append(rows)
    for at, rows in enumerate(apart):
        torch.testing.assert_close(together[at % 3 * 2 + at // 3], rows)
    assert all(not torch.equal(a, b) for a, b in pairwise(apart))
