from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import retrieve


def test_it_learns_to_read_the_right_fact(quick: Callable) -> None:
    figures = quick("retrieve", (1560, 480))
    assert figures["facts"] > 3000
    assert figures["exact_match"] > 0.9
    assert figures["points_at_it"] > 0.9
    assert figures["growth_of_multiply_adds"] == pytest.approx(1, abs=0.05)
    assert figures["growth_of_milliseconds"] < 2  # far from quadratic, whatever else runs


def test_facts_asked_for_stand_in_their_memory() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        people = torch.randperm(12 * 26 * 11)[:97]
        facts, lengths, asked = retrieve.gather(people, 3, 13, 7)
    assert facts.shape == (3, 78, 5)
    assert asked.shape == (21, 5)
    for at, fact in enumerate(asked):
        told = facts[at // 7, : lengths[at // 7]]
        assert (told == fact).all(1).sum() == 1
        assert (told[:, :4] == fact[:4]).all(1).sum() == 1  # one answer only
        first, initial, last = (fact[:3] - torch.tensor([0, 12, 38])).tolist()
        assert first * 286 + initial * 11 + last in people
