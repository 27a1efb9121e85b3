"""Attention at first sight: a sentence is re-read out of order, by queries that point at keys.

    weight[t, s] = softmax_s(q_t · k_s),    k_s = (cos a_s, sin a_s)

Each French word has a key and each English word a query, of two numbers each. Their directions are
learned, so that each English word reads the French word that it translates: a query points at the
key that it reads, and the longer it is, the sharper it reads.
"""

import sys
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import normalize

import crossattention as xa
from door import enter, leave, save

FRENCH = ["aujourd’hui", "elle", "mange", "une", "pomme", "rouge"]
ENGLISH = ["she", "eats", "a", "red", "apple", "today"]
READS = torch.tensor([1, 2, 3, 5, 4, 0])  # the French word that each English word reads
LENGTHS = (1, 2, 4, 8)
SHOWN, BLUE, ORANGE = "apple", "#2b6cb0", "#dd6b20"


def weigh(query: Tensor, key: Tensor, length: float) -> Tensor:
    """Give the weights [t, s] of queries [t, 2] of one length over keys [s, 2] of length 1."""
    return xa.attention_weights(length * query[None], key[None], scale=1.0)[0]


def learn(steps: int) -> tuple[Tensor, Tensor]:
    """Learn the directions of queries [t, 2] and keys [s, 2], while queries grow to full length."""
    free = [torch.randn(len(words), 2, requires_grad=True) for words in (ENGLISH, FRENCH)]
    optimizer = torch.optim.Adam(free, lr=0.05)
    for step in range(1, steps + 1):
        query, key = (normalize(numbers) for numbers in free)
        weights = weigh(query, key, LENGTHS[-1] * step / steps)
        loss = -weights.take_along_dim(READS[:, None], 1).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step} of {steps}: loss {loss:.3f}", file=sys.stderr)
    return query.detach(), key.detach()


def arrow(axes: Axes, end: Tensor, width: float, colour: str, name: str, at: float) -> None:
    """Draw an arrow from the origin to `end`, and its name, `at` times as far."""
    style = {"arrowstyle": "-|>, head_width=0.25, head_length=0.5", "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end.tolist(), (0, 0), arrowprops={"color": colour, "lw": width, **style})
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
    axes.text(*(at * end).tolist(), name, color=colour, ha="center", va="center", bbox=box)
    axes.set(xlim=(-1.8, 1.8), ylim=(-1.6, 1.6), aspect="equal")


def picture(path: Path, query: Tensor, key: Tensor) -> None:
    figure = Figure(figsize=(13, 9), layout="constrained")
    rows = [["plane", "plane", "order", "order"], [*LENGTHS]]
    parts = figure.subplot_mosaic(rows, height_ratios=(3, 2))
    parts["plane"].set_title("Each English query points at the French key that it reads")
    parts["order"].set_title("So the sentence is read out of order")
    for at, word in enumerate(FRENCH):
        arrow(parts["plane"], key[at], 1.5, BLUE, word, 1.2)
        parts["order"].text(at, 1.03, word, color=BLUE, size=13, ha="center", va="bottom")
    for at, word in enumerate(ENGLISH):
        arrow(parts["plane"], 0.85 * query[at], 4, ORANGE, word, 0.6)
        parts["order"].text(at, -0.03, word, color=ORANGE, size=13, ha="center", va="top")
        for s, weight in enumerate(weigh(query, key, LENGTHS[-1])[at].tolist()):
            parts["order"].plot([s, at], [1, 0], color="dimgrey", lw=6 * weight, alpha=weight)
    for length in LENGTHS:
        parts[length].set_title(f"“{SHOWN}”, a query of length {length}")
        asks = query[ENGLISH.index(SHOWN)]
        weights = weigh(asks[None], key, length)[0].tolist()
        for end, name, weight in zip(key, FRENCH, weights, strict=True):
            arrow(parts[length], end, 0.5 + 8 * weight, BLUE, f"{name}\n{weight:.0%}", 1.35)
        arrow(parts[length], 0.1 * length * asks, 2.5, ORANGE, "", 1)
    for part in parts.values():
        part.margins(0.1)
        part.axis("off")
    save(figure, path)


def main(words: list[str] | None = None) -> None:
    args, figures = enter(__doc__, words), {}
    query, key = learn(3000 if args.full else 300)
    most = weigh(query, key, LENGTHS[-1]).argmax(1)
    figures["reads"] = {ENGLISH[t]: FRENCH[s] for t, s in enumerate(most)}
    figures["reads_right"] = (most == READS).float().mean().item()
    for length in LENGTHS:
        on_it = weigh(query, key, length).take_along_dim(READS[:, None], 1)
        figures[f"weight_at_length_{length}"] = on_it.mean().item()
    picture(args.out / "draw.png", query, key)
    leave("draw", args, figures)


if __name__ == "__main__":
    main()
