"""The largest of long rows are those that sorting finds."""

from __future__ import annotations

import pytest
import torch

from crossattention.seq2seq.top import largest


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 640, 1000, 8000])
@pytest.mark.parametrize("k", [1, 2, 8])
def test_they_are_what_sorting_finds(n: int, k: int) -> None:
    torch.manual_seed(0)
    rows = torch.randn(3, 2, n)
    rows[rows > 1.5] = -torch.inf
    numbers, places = largest(rows, k)
    wanted = rows.sort(-1, descending=True).values[..., :k]
    assert torch.equal(numbers, wanted)
    assert torch.equal(rows.gather(-1, places), wanted)
    assert all(len(set(row)) == len(row) for row in places.flatten(0, 1).tolist())


def test_equal_numbers_are_found_once_each() -> None:
    rows = torch.full((1, 1000), -torch.inf)
    rows[0, [3, 700, 999]] = 1.0
    numbers, places = largest(rows, 4)
    assert set(places[0, :3].tolist()) == {3, 700, 999}
    assert numbers[0].tolist() == [1.0, 1.0, 1.0, -torch.inf]
