from __future__ import annotations

from collections.abc import Callable


def test_the_swapped_model_fails_and_the_laws_say_so(quick: Callable) -> None:
    figures = quick("swap", (1440, 504))
    assert figures["accuracy_right"] > 0.99
    assert figures["accuracy_swapped"] < figures["best_with_one_letter"] + 0.02
    assert max(figures["broken_right"]) < 1e-4
    assert min(figures["broken_swapped"]) > 0.1
