"""Compare ways to caption held-out canvases: how many words each gets right, and what it says."""

from __future__ import annotations

from matplotlib.axes import Axes
from torch import Tensor

from digits import Canvases, score, spell


def rated(captions: dict[str, Tensor], drawn: Canvases) -> dict[str, float]:
    """Rate each way by its captions [n, 7]: the shares of captions and of words that are right."""
    return {
        f"{name}_{kind}": share.item()
        for kind, found in captions.items()
        for name, share in score(found, drawn.captions).items()
    }


def show(
    bars: Axes,
    canvas: Axes,
    captions: dict[str, Tensor],
    drawn: Canvases,
    pair: tuple[str, str],
) -> None:
    """Draw the shares of words as bars, and the first canvas between what a pair of ways says."""
    figures, kinds = rated(captions, drawn), [kind.replace("_", "\n") for kind in captions]
    shown = bars.bar(kinds, [figures[f"words_right_{kind}"] for kind in captions], color="C3")
    bars.bar_label(shown, fmt="%.3f")
    bars.set(title="Words that are right, held-out digits", ylim=(0, 1.1))
    canvas.imshow(drawn.images[0, 0], "gray_r")
    above, below = (f"{kind}: {spell(captions[kind][0])}" for kind in pair)
    canvas.set(title=above, xlabel=below, xticks=[], yticks=[])
