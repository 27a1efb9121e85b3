from __future__ import annotations

from collections.abc import Callable


def test_caption(quick: Callable) -> None:
    figures = quick("caption", (1200, 672))
    assert figures["words_right"] > 0.15  # chance is 0.1
    assert figures["words_grounded"] > 0.3  # chance is 0.17
