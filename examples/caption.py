"""Words read a picture: a caption is said word by word, each word looking at the digit it names.

    word_t = argmax decoder(word_<t, memory),    memory = remember(tokens of the image), once

A convolution turns a canvas of handwritten digits into 54 tokens that keep their place, and two
decoder blocks read them. Nothing says where to look; where the last block does look is measured.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor, nn

import crossattention as xa
from crossattention import nn as xnn
from digits import BEGIN, CELL, COLUMNS, END, LONGEST, PAD, ROWS, VOCABULARY, canvases, score
from door import enter, leave, save

WIDTH, HEADS, STRIDE, DOWN, ACROSS = 64, 4, 4, 6, 9  # tokens: 6 x 9, one every four pixels


class Captioner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Sequential()  # a token sees 13 pixels: about a cell, no more
        for here, there, stride in ((1, 16, 1), (16, 32, 2), (32, 64, 1), (64, WIDTH, 2)):
            convolution = nn.Conv2d(here, there, 3, stride, padding=1)
            self.see.extend([convolution, nn.BatchNorm2d(there), nn.ReLU()])
        del self.see[-1]
        self.row = nn.Parameter(torch.randn(DOWN, 1, WIDTH))
        self.column = nn.Parameter(torch.randn(ACROSS, WIDTH))
        self.word = nn.Embedding(len(VOCABULARY), WIDTH)
        self.place = nn.Parameter(torch.randn(LONGEST, WIDTH))
        self.blocks = nn.ModuleList(xnn.DecoderBlock(WIDTH, HEADS, 4 * WIDTH) for _ in range(2))
        self.score = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, END + 1))

    def look(self, images: Tensor) -> xa.Memory:
        tokens = self.see(images).movedim(1, 3) + self.row + self.column  # -> [b, 6, 9, c]
        memory = xa.Memory.of(nn.functional.layer_norm(tokens, [WIDTH]).flatten(1, 2))
        for block in self.blocks:
            memory = block.cross_attention.remember(memory, queries=LONGEST)
        return memory

    def forward(self, images: Tensor, said: Tensor) -> Tensor:
        memory, stream = self.look(images), self.word(said) + self.place
        for block in self.blocks:
            stream = block(stream, memory)
        return self.score(stream)  # [b, 7, c] -> [b, 7, 11], of the word after each that is said

    @torch.no_grad()
    def caption(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Say the likeliest words one by one, [b, 7], and what the last block read, [b, 7, 54]."""
        memory, word = self.look(images), torch.full((len(images), 1), BEGIN)
        caches = [block.self_attention.start(len(images), LONGEST) for block in self.blocks]
        words, maps = [], []
        for place in self.place:
            stream = self.word(word) + place
            for at, block in enumerate(self.blocks):
                asking, caches[at] = block.step_self(stream, caches[at])
                stream = block.read_memory(asking, memory)
            maps.append(block.weights(asking, memory, range(HEADS)).mean(1))  # the heads' mean
            words.append(word := self.score(stream).argmax(2))
        return torch.cat(words, 1), torch.cat(maps, 1)


def test(model: Captioner, out: Path) -> dict[str, Tensor]:
    images, captions, cells = canvases(1000, "held out", Generator().manual_seed(0))
    words, maps = model.caption(images)
    five = (cells >= 0).sum(1).tolist().index(5)  # a caption of five words is drawn, and its end
    picture, place = Figure((10, 5.6), layout="constrained"), (0, COLUMNS * CELL, ROWS * CELL, 0)
    for at, panel in enumerate(picture.subplots(2, 3, sharex=True, sharey=True).flat):
        weights = maps[five, at].view(DOWN, ACROSS)
        shown = panel.imshow(weights, "Reds", extent=place, vmin=0, vmax=maps[five].max())
        panel.imshow(images[five, 0], "gray_r", alpha=images[five, 0], extent=place)
        title = f"{at + 1}. {VOCABULARY[words[five, at]]}"
        panel.set(title=title, xticks=range(0, 37, CELL), yticks=range(0, 25, CELL))
        panel.grid(color="0.8")
    picture.colorbar(shown, ax=picture.axes, label="weight (last block, mean of its heads)")
    picture.suptitle("What each word of a caption reads on a canvas of held-out digits")
    save(picture, out / "caption.png")
    peak = maps[:, :-1].argmax(2)  # the token read most by each word that may name a digit
    cell = peak // ACROSS * STRIDE // CELL * COLUMNS + peak % ACROSS * STRIDE // CELL
    grounded = (cell == cells)[cells >= 0].float().mean()
    return {**score(words, captions), "words_grounded": grounded}


def main(words: list[str] | None = None) -> None:
    args = enter(__doc__, words)
    model, steps = Captioner(), 3000 if args.full else 220
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.1)
    for step in range(1, steps + 1):  # counting comes last: at first no cell is empty
        images, captions, _ = canvases(
            32, "train", args.generator, distort=True, crowded=2 - step / 100
        )
        said = nn.functional.pad(captions[:, :-1], (1, 0), value=BEGIN)
        loss = nn.functional.cross_entropy(model(images, said).mT, captions, ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % (steps // 10) == 0:
            print(f"step {step} of {steps}: loss {loss:.3f}", file=sys.stderr)
    leave("caption", args, test(model.eval(), args.out))


if __name__ == "__main__":
    main()
