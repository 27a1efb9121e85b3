from __future__ import annotations

import torch

from crossattention.translate.padding import by_length, padded


def test_every_position_comes_once_within_the_budget() -> None:
    lengths = [3, 11, 2, 7, 7, 1, 5]
    groups = list(by_length(lengths, 14))
    assert sorted(at for group in groups for at in group) == list(range(7))
    for group in groups:
        assert max(lengths[at] for at in group) * len(group) <= 14
    assert groups[0] == [1]


def test_a_longer_sequence_than_the_budget_stands_alone() -> None:
    assert list(by_length([9, 9], 5)) == [[0], [1]]
    assert list(by_length([], 5)) == []


def test_padding_is_at_the_end() -> None:
    rows = padded([[4], [5, 6, 7]], torch.device("cpu"))
    assert rows.tolist() == [[4, 0, 0], [5, 6, 7]] and rows.dtype == torch.int64
