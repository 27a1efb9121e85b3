from __future__ import annotations

from collections.abc import Callable


def test_perceiver(quick: Callable) -> None:
    figures = quick("perceiver", (1080, 1032))
    assert figures["accuracy"] > 0.5  # chance is 0.1
    assert figures["accuracy_256_pixels"] > 0.5
    assert figures["accuracy_half_of_the_pixels"] > 0.3
