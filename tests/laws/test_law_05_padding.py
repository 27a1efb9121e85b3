"""Law 5. A padded batch gives what its members give one by one, and in any order."""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.seq2seq import Config, EncoderDecoder
from laws import modules
from laws.given import Sizes, build
from laws.table import EXACT, FORMS, Case

LENGTHS = [7, 0, 11, 1, 5]


@pytest.mark.parametrize("kernel", EXACT)
@pytest.mark.parametrize("heads", ["each", "grouped"])
@pytest.mark.parametrize("s", [11, 31, 33, 65, 129])
def test_function(s: int, heads: str, kernel: str, device: torch.device) -> None:
    torch.manual_seed(s)
    lengths = [min(length, s) for length in LENGTHS[:-1]] + [s]
    h, g = {"each": (3, 3), "grouped": (6, 2)}[heads]
    query = torch.randn(5, h, 7, 13, dtype=torch.float64, device=device)
    key, value = (torch.randn(5, g, s, 13, dtype=torch.float64, device=device) for _ in "kv")
    together = xa.attend(query, key, value, lengths=lengths, kernel=kernel)
    for one, length in enumerate(lengths):
        each = slice(one, one + 1)
        short = key[each, :, :length], value[each, :, :length]
        alone = xa.attend(query[each], *short, kernel=kernel)
        torch.testing.assert_close(together[each], alone, atol=1e-12, rtol=1e-12)
    order = torch.tensor([3, 0, 4, 2, 1], device=device)
    moved = [lengths[i] for i in order.tolist()]
    found = xa.attend(query[order], key[order], value[order], lengths=moved, kernel=kernel)
    torch.testing.assert_close(found, together[order], atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kernel", EXACT)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("beams", [1, 3])
def test_layer(beams: int, form: str, kernel: str, device: torch.device) -> None:
    layer = build(Sizes.of(Case(heads="grouped"))).to(device)
    layer.kernel = kernel
    rows = torch.randn(5, 11, 23, dtype=torch.float64, device=device)
    query = torch.randn(5 * beams, 7, 19, dtype=torch.float64, device=device)
    memory = layer.remember(rows, LENGTHS, form=form)
    together = layer(query, memory.shared_by(beams) if beams > 1 else memory)
    for one, length in enumerate(LENGTHS):
        alone = layer.remember(rows[one : one + 1, :length], form=form).shared_by(beams)
        lanes = slice(one * beams, (one + 1) * beams)
        found = layer(query[lanes], alone)
        torch.testing.assert_close(found, together[lanes], atol=1e-12, rtol=1e-12)
    order = torch.tensor([3, 0, 4, 2, 1], device=device)
    moved = layer.remember(rows[order], torch.tensor(LENGTHS, device=device)[order], form=form)
    queries = query.view(5, beams, 7, 19)[order].flatten(0, 1)
    found = layer(queries, moved.shared_by(beams))
    wanted = together.view(5, beams, 7, 19)[order].flatten(0, 1)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_model(norm: str) -> None:
    """The encoder reads its own padding no more than the decoder does."""
    torch.manual_seed(4)
    config = Config(
        vocabulary=29, width=12, heads=3, feed_forward=17, encoder_layers=2, decoder_layers=2,
        norm=norm,
    )  # fmt: skip
    model = EncoderDecoder(config).double().eval()
    source, target = torch.randint(3, 29, (5, 11)), torch.randint(3, 29, (5, 7))
    lengths = [7, 2, 11, 1, 5]
    together = model(source, torch.tensor(lengths), target)
    for one, length in enumerate(lengths):
        each = slice(one, one + 1)
        alone = model(source[each, :length], torch.tensor([length]), target[each])
        torch.testing.assert_close(together[each], alone, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
@pytest.mark.parametrize("lengths", modules.LENGTHS, ids=str)
def test_modules_read_padded_as_they_read_one_by_one(
    subject: modules.Subject, form: str, lengths: list[int]
) -> None:
    module, (query, rows) = subject.build(), modules.given()
    padded = subject.read(module, query, subject.remember(module, rows, lengths, form))
    for i, length in enumerate(lengths):
        memory = subject.remember(module, rows[i : i + 1, :length], None, form)
        alone = subject.read(module, query[i : i + 1], memory)
        torch.testing.assert_close(padded[i : i + 1], alone)
