"""A past that moves only what lanes do not hold yet equals one that is copied whole."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from crossattention.seq2seq.past import Past

SIZES = (2, 2, 3, 5)  # layers, keys and values, heads, width


def written(past: Past, step: Tensor) -> Past:
    past = past.grown()
    for layer in range(SIZES[0]):
        past.write(layer, step[:, layer])
    return past


@pytest.mark.parametrize("capacity", [0, 1, 3, 64])
@pytest.mark.parametrize("seed", range(5))
def test_it_follows_lanes_that_cross_leave_and_come_back(seed: int, capacity: int) -> None:
    torch.manual_seed(seed)
    lanes = 7
    past = Past.empty(torch.zeros(lanes, *SIZES), capacity)
    plain: list[Tensor] = []
    for step in range(20):
        rows = torch.randn(lanes, *SIZES)
        past, plain = written(past, rows), [*plain, rows]
        if step % 7 == 5:  # some leave, or more come
            lanes = int(torch.randint(1, 9, ()))
        index = torch.randint(len(rows), (lanes,))
        past, plain = past.select(index), [each[index] for each in plain]
        assert torch.equal(past.rows[: past.length], torch.stack(plain))


@pytest.mark.parametrize("capacity", [1, 3])  # the second step takes more room, or does not
def test_lanes_that_hold_the_same_move_nothing(capacity: int) -> None:
    past = written(Past.empty(torch.zeros(1, *SIZES), capacity), torch.randn(1, *SIZES))
    past = past.select(torch.zeros(4, dtype=torch.int64))
    past = written(past, torch.randn(4, *SIZES))
    past.rows[0, 1:] = torch.nan  # equal to what lane 0 holds, as far as the past knows
    moved = past.select(torch.tensor([0, 0, 3, 2]))
    assert moved.rows[0, 1:].isnan().all()
    assert torch.equal(moved.rows[1], past.rows[1]) and not moved.rows[1].isnan().any()
    assert moved.rows.data_ptr() == past.rows.data_ptr()
    moved.rows[1, 1] = torch.nan  # by now what lane 0 holds
    assert moved.select(torch.tensor([0, 0, 2, 3])).rows[1, 1].isnan().all()


def test_nothing_is_selected_of_nothing() -> None:
    past = Past.empty(torch.zeros(3, *SIZES), capacity=0).select(torch.tensor([], dtype=int))
    assert past.rows.shape == (0, 0, *SIZES) and past.grown().rows.shape[0] == 1
