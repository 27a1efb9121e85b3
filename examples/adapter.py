"""A frozen language model learns to use an image, through gated cross-attention only.

A gated layer is put before each block of a model that knows captions, but has never seen an image.
Closed, as they begin, the layers change no bit of what it computes; opened, they let it read what a
frozen encoder sees in the cells of a canvas. Paper: Alayrac et al. 2022, "Flamingo".
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor, nn

import crossattention as xa
from compare import rated, show
from digits import CELLS, LONGEST, Canvases, canvases
from door import enter, leave, save
from frozen import DEPTH, HEADS, WIDTH, Encoder, Language, begun, fit, loss_of, say, trained


class Adapter(nn.Module):
    """The gated layers: all that learns."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"width": WIDTH, "heads": HEADS, "memory_width": WIDTH + CELLS}
        self.layers = nn.ModuleList(xa.GatedCrossAttention(**sizes) for _ in range(DEPTH))

    def remember(self, encoder: Encoder, images: Tensor) -> xa.Memory:
        seen, cells = encoder(images), torch.eye(CELLS).expand(len(images), -1, -1)
        memory = xa.Memory.of(torch.cat([seen, cells], 2))  # what, and where
        for layer in self.layers:
            memory = layer.remember(memory, queries=LONGEST)
        return memory

    def guess(self, language: Language, stream: Tensor, memory: xa.Memory) -> Tensor:
        return language(stream, lambda at, x: self.layers[at](x, memory))

    def gates(self) -> list[float]:
        return [gate.item() for x in self.layers for gate in (x.gate_attention, x.gate_feed)]


def main(words: list[str] | None = None) -> None:
    args = enter(__doc__, words)
    scale = 25 if args.full else 5
    (language, encoder), adapter, opened = trained(scale), Adapter(), list[list[float]]()
    frozen = {name: weight.clone() for name, weight in language.state_dict().items()}
    drawn = canvases(1000, "held out", Generator().manual_seed(0))
    memory, stream = adapter.remember(encoder, drawn.images), begun(language, drawn)
    with torch.no_grad():  # the same kernel for both, whether or not a gradient is wanted
        closed, alone = adapter.guess(language, stream, memory), language(stream)
    changed = {"outputs_changed_before": differ(closed, alone)}

    def loss(drawn: Canvases) -> Tensor:
        opened.append(adapter.gates())
        memory = adapter.remember(encoder, drawn.images)
        return loss_of(adapter.guess(language, begun(language, drawn), memory), drawn)

    fit("adapter", adapter, 100 * scale, loss)
    weights = language.state_dict()
    changed["weights_changed_after"] = sum(differ(x, frozen[name]) for name, x in weights.items())
    assert not any(changed.values()), changed
    memory = adapter.remember(encoder, drawn.images)
    shuffled = memory.select(torch.arange(1000).roll(1))  # each caption beside another's image
    captions = {"before": say(1000, lambda said: language(language.embed(said)))} | {
        kind: say(1000, lambda said, x=read: adapter.guess(language, language.embed(said), x))
        for kind, read in (("after", memory), ("image_shuffled", shuffled))
    }
    draw(opened, captions, drawn, args.out)
    leave("adapter", args, rated(captions, drawn) | changed)


def differ(one: Tensor, other: Tensor) -> int:
    """Count the numbers that differ in any bit."""
    return int((one.view(torch.int32) != other.view(torch.int32)).sum())


def draw(
    opened: list[list[float]], captions: dict[str, Tensor], drawn: Canvases, out: Path
) -> None:
    picture = Figure((11, 4), layout="constrained")
    gates, bars, canvas = picture.subplots(1, 3)
    names = [f"{part}, layer {at + 1}" for at in range(DEPTH) for part in ("reading", "thinking")]
    for name, line in zip(names, torch.tensor(opened).tanh().T, strict=True):
        gates.plot(line, label=name)
    gates.set(title="Gates open as the adapter learns", xlabel="step", ylabel="tanh(gate)")
    gates.legend(fontsize=8)
    show(bars, canvas, captions, drawn, ("before", "after"))
    save(picture, out / "adapter.png")


if __name__ == "__main__":
    main()
