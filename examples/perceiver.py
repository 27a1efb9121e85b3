"""32 latents classify handwritten digits from single pixels, however many there are.

Each row of the input is one pixel: its ink, and Fourier features of where it stands. The latents
read all rows, then one another. Nothing in the model knows how many rows there are, so the same
weights read digits of 64 or of 256 pixels, or half of them. Paper: Jaegle et al. 2021, "Perceiver".
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import crossattention as xa
from crossattention.nn import fourier_features, grid_positions
from digits import HALVES
from door import enter, leave, save

WIDTH, HEADS, LATENTS, BANDS, SIDE = 64, 4, 32, 4, 8
FEATURES = 1 + 2 * (2 * BANDS + 1)  # ink, and for each of two axes a place, sines and cosines


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(FEATURES, WIDTH)
        sizes = {"memory_width": WIDTH, "queries": LATENTS, "reads": 2, "latent_layers": 1}
        self.perceiver = xa.Perceiver(WIDTH, HEADS, **sizes)
        self.score = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, rows: Tensor) -> Tensor:
        return self.score(self.perceiver(self.widen(rows)).mean(1))  # [b, M, f] -> [b, 10]


def pixels(images: Tensor) -> Tensor:
    """Make a row of each pixel, its ink and where it stands: [b, side, side] -> [b, side², f]."""
    places = fourier_features(grid_positions(images.shape[1:]), BANDS, (SIDE, SIDE))
    return torch.cat([images.flatten(1)[..., None], places.expand(len(images), -1, -1)], 2)


def some(rows: Tensor, share: float, generator: Generator) -> Tensor:
    """Keep a share of the rows of each input, other ones for each."""
    count = int(share * rows.shape[1])
    kept = torch.rand(rows.shape[:2], generator=generator).argsort(1)[:, :count]
    return rows.gather(1, kept[..., None].expand(-1, -1, FEATURES))


def larger(images: Tensor, side: int) -> Tensor:
    return F.interpolate(images[:, None], (side, side), mode="bilinear", align_corners=True)[:, 0]


def distorted(images: Tensor, generator: Generator) -> Tensor:
    """Turn, scale, shear, move and bend each digit a little."""
    n = len(images)
    affine = torch.eye(2, 3) + 0.12 * torch.randn(n, 2, 3, generator=generator)
    grid = F.affine_grid(affine, [n, 1, SIDE, SIDE], align_corners=False)
    bend = 0.08 * torch.randn(n, 2, 4, 4, generator=generator)
    grid = grid + F.interpolate(bend, size=(SIDE, SIDE), mode="bicubic").movedim(1, -1)
    return F.grid_sample(images[:, None], grid, align_corners=False)[:, 0]


@torch.no_grad()
def test(model: Classifier, out: Path) -> dict[str, float]:
    images, labels = HALVES["held out"]
    inputs = {
        "accuracy": pixels(images),
        "accuracy_256_pixels": pixels(larger(images, 16)),
        "accuracy_half_of_the_pixels": some(pixels(images), 0.5, Generator().manual_seed(0)),
    }
    right = {name: (model(x).argmax(1) == labels).float().mean() for name, x in inputs.items()}
    perceiver, shown = model.perceiver, larger(images[:5], 16)
    block, rows = perceiver.reading[0], perceiver.memory_norm(model.widen(pixels(shown)))
    asked = block.around_cross.norm(perceiver.queries(5))
    maps = block.cross_attention.weights(asked, rows).mean(1)  # [b, n, M], the heads' mean
    chosen = maps.var((0, 2)).topk(4).indices  # the latents that look at something in particular
    picture = Figure((9, 8.6), layout="constrained")
    panels = picture.subplots(5, 5, subplot_kw={"xticks": [], "yticks": []})
    for at, line in enumerate(panels):
        line[0].imshow(shown[at], "gray_r")
        line[0].set_title(f'read as "{model(pixels(shown[at : at + 1])).argmax()}"')
        for latent, panel in zip(chosen.tolist(), line[1:], strict=True):
            panel.imshow(maps[at, latent].view(16, 16), "Reds")
            panel.set_title(f"latent {latent}")
    picture.suptitle("Held-out digits of 256 pixels, and the pixels that four of 32 latents read")
    save(picture, out / "perceiver.png")
    return {name: share.item() for name, share in right.items()}


def main(words: list[str] | None = None) -> None:
    args = enter(__doc__, words)
    model, steps = Classifier(), 4000 if args.full else 400
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.995))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps, pct_start=0.1)
    images, labels = HALVES["train"]
    for step in range(1, steps + 1):
        chosen = torch.randint(len(images), (64,), generator=args.generator)
        shown = distorted(images[chosen], args.generator)
        rows = pixels(larger(shown, 12) if step % 4 == 0 else shown)
        share = 0.5 + 0.5 * torch.rand((), generator=args.generator).item()
        scores = model(some(rows, share, args.generator))
        loss = F.cross_entropy(scores, labels[chosen], label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
        if step % (steps // 10) == 0:
            print(f"step {step} of {steps}: loss {loss:.3f}", file=sys.stderr)
    leave("perceiver", args, test(average.module.eval(), args.out))


if __name__ == "__main__":
    main()
