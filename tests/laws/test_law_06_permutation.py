"""Law 6. Memory rows have no order: shuffled with what hides them, they change nothing.

Query rows have none either: shuffled, they shuffle the results.
"""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.nn import Rotary
from laws import modules
from laws.ask import ask
from laws.given import Given, draw
from laws.table import MASKS, Case, cases, every

UNORDERED = tuple(mask for mask in MASKS if "lengths" not in mask and "top" not in mask
                  and "bottom" not in mask)  # fmt: skip
AXES = every(
    mask=UNORDERED, dtype=("float64",), layout=("contiguous", "permuted", "sliced"),
    mode=("eval", "train"),
)  # fmt: skip


def moved(given: Given, axis: int, order: torch.Tensor, streams: tuple[str, ...]) -> None:
    """Move rows of streams, and the masks' axis of that name, in place."""
    for name in streams:
        given.leaves[name] = given.leaves[name].index_select(-2, order)
    for name in ("visible", "bias"):
        mask = given.options.get(name)
        if mask is not None and mask.shape[axis] > 1:
            given.options[name] = mask.index_select(axis, order)


@pytest.mark.parametrize("case", cases(**AXES), ids=str)
def test_memory_rows(case: Case, device: torch.device) -> None:
    given, shuffled = draw(case, device), draw(case, device)
    order = torch.randperm(given.sizes.s, device=device)
    streams = ("rows",) if case.door == "layer" else ("key", "value")
    moved(shuffled, -1, order, streams)
    torch.testing.assert_close(ask(case, shuffled), ask(case, given), atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("case", cases(**AXES), ids=str)
def test_query_rows(case: Case, device: torch.device) -> None:
    given, shuffled = draw(case, device), draw(case, device)
    order = torch.randperm(given.sizes.t, device=device)
    moved(shuffled, -2, order, ("query",))
    wanted = ask(case, given).index_select(-2, order)
    torch.testing.assert_close(ask(case, shuffled), wanted, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
def test_modules_do_not_mind_the_order_of_rows(subject: modules.Subject, form: str) -> None:
    module, (query, rows) = subject.build(), modules.given()
    order = torch.tensor([4, 1, 6, 3, 0, 5, 2])  # even rows stay among even ones
    output = subject.read(module, query, subject.remember(module, rows, None, form))
    moved = subject.read(module, query, subject.remember(module, rows[:, order], None, form))
    torch.testing.assert_close(moved, output)
    if output.shape[1] == query.shape[1]:
        turned = subject.read(module, query.flip(1), subject.remember(module, rows, None, form))
        torch.testing.assert_close(turned, output.flip(1))


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
def test_rows_shuffled_with_their_positions_change_nothing(pairs: str) -> None:
    torch.manual_seed(3)
    layer = xa.CrossAttention(12, 2).double().eval()
    layer.rotary = Rotary(4, pairs=pairs)
    query, rows = modules.given()
    at, asked = torch.tensor([0, 1, 4, 5, 6, 9, 12]), torch.tensor([5, 3, 3, 8, 0])
    output = layer(query, layer.remember(rows, positions=at), positions=asked)
    order = torch.randperm(7)
    moved = layer.remember(rows[:, order], positions=at[order])
    torch.testing.assert_close(layer(query, moved, positions=asked), output)
    later = layer.remember(rows, positions=at + 5)  # differences alone count
    torch.testing.assert_close(layer(query, later, positions=asked + 5), output)
    assert (layer(query, later, positions=asked) - output).abs().max() > 1e-3
