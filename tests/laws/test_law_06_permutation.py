"""Law 6. Memory rows have no order: shuffled with what hides them, they change nothing.

Query rows have none either: shuffled, they shuffle the results.
"""

from __future__ import annotations

import pytest
import torch

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
