"""32 learned queries let a frozen language model use a frozen image encoder.

Neither model has met the other. The bridge reads what the encoder sees in the cells of a canvas,
and its 32 rows are put before the words, as if they had been said. Only the bridge learns. Paper:
Li et al. 2023, "BLIP-2".
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor, nn

from compare import rated, show
from crossattention.nn import QueryFormer
from digits import CELLS, Canvases, canvases
from door import enter, leave, save
from frozen import HEADS, WIDTH, Encoder, Language, begun, fit, loss_of, say, trained

QUERIES = 32


class Bridge(nn.Module):
    """Learned queries read an image, and become rows of the language model's stream."""

    def __init__(self) -> None:
        super().__init__()
        self.read = QueryFormer(
            WIDTH, HEADS, queries=QUERIES, memory_width=WIDTH + CELLS, depth=2, every=1
        )
        self.speak = nn.Linear(WIDTH, WIDTH)

    def forward(self, encoder: Encoder, images: Tensor) -> Tensor:
        seen, cells = encoder(images), torch.eye(CELLS).expand(len(images), -1, -1)
        return self.speak(self.read(torch.cat([seen, cells], 2)))  # what, and where -> [b, 32, c]


def guess(language: Language, rows: Tensor, stream: Tensor) -> Tensor:
    return language(torch.cat([rows, stream], 1))[:, rows.shape[1] :]


def main(words: list[str] | None = None) -> None:
    args = enter(__doc__, words)
    scale = 20 if args.full else 2
    (language, encoder), bridge, losses = trained(scale), Bridge(), list[float]()
    both = [*language.parameters(), *encoder.parameters()]
    frozen = [weight.clone() for weight in both]

    def loss(drawn: Canvases) -> Tensor:
        rows = bridge(encoder, drawn.images)
        found = loss_of(guess(language, rows, begun(language, drawn)), drawn)
        losses.append(found.item())
        return found

    fit("bridge", bridge, 100 * scale, loss)
    changed = sum(not torch.equal(one, other) for one, other in zip(both, frozen, strict=True))
    assert not changed and all(weight.grad is None for weight in both)
    drawn = canvases(1000, "held out", Generator().manual_seed(0))
    rows = bridge(encoder, drawn.images)
    shuffled = rows.roll(1, 0)  # each caption behind another's image
    nothing = rows[:, :0]
    captions = {
        kind: say(1000, lambda said, x=x: guess(language, x, language.embed(said)))
        for kind, x in (("chance", nothing), ("image_shuffled", shuffled), ("bridge", rows))
    }
    draw(losses, captions, drawn, args.out)
    leave("bridge", args, rated(captions, drawn) | {"weights_changed": changed})


def draw(losses: list[float], captions: dict[str, Tensor], drawn: Canvases, out: Path) -> None:
    picture = Figure((11, 4), layout="constrained")
    curve, bars, canvas = picture.subplots(1, 3)
    smooth = torch.tensor(losses).unfold(0, 20, 20).mean(1)
    curve.plot(torch.arange(len(smooth)) * 20, smooth)
    curve.set(title="Only the bridge learns", xlabel="step", ylabel="loss a word", ylim=(0, None))
    show(bars, canvas, captions, drawn, ("chance", "bridge"))
    save(picture, out / "bridge.png")


if __name__ == "__main__":
    main()
