from __future__ import annotations

from collections.abc import Callable


def test_adapter(quick: Callable) -> None:
    figures = quick("adapter", (1320, 480))
    assert (figures["outputs_changed_before"], figures["weights_changed_after"]) == (0, 0)
    assert figures["words_right_after"] > 2 * figures["words_right_image_shuffled"]
