from __future__ import annotations

from collections.abc import Callable


def test_each_query_learns_to_point_at_the_key_it_reads(quick: Callable) -> None:
    figures = quick("draw", (1560, 1080))
    assert figures["reads_right"] == 1
    assert figures["reads"]["red"] == "rouge"
    sharper = [figures[f"weight_at_length_{length}"] for length in (1, 2, 4, 8)]
    assert sharper == sorted(sharper)
    assert sharper[0] < 0.5
    assert sharper[-1] > 0.9
