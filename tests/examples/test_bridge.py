from __future__ import annotations

from collections.abc import Callable


def test_bridge(quick: Callable) -> None:
    figures = quick("bridge", (1320, 480))
    assert figures["weights_changed"] == 0
    assert figures["words_right_bridge"] > figures["words_right_image_shuffled"]
