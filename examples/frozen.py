"""A tiny language model and a tiny image encoder, each trained by itself and then frozen.

The language model is trained on captions without any image: it guesses them, or repeats one that it
has heard. The encoder is trained to tell the digits of single cells, and never sees a caption. What
two examples add is all that learns to bring them together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from crossattention.nn import EncoderBlock
from digits import BEGIN, CELL, CELLS, END, LONGEST, PAD, VOCABULARY, Canvases, canvases

WIDTH, HEADS, DEPTH, EMPTY = 64, 4, 2, 10


class Language(nn.Module):
    """Guess the word after each row of a stream, from the rows up to it."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(len(VOCABULARY), WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(EncoderBlock(WIDTH, HEADS, 4 * WIDTH) for _ in range(DEPTH))
        self.score = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, END + 1))

    def embed(self, said: Tensor) -> Tensor:
        return self.word(said) + self.place.weight[: said.shape[1]]  # [b, t] -> [b, t, c]

    def forward(
        self, stream: Tensor, before: Callable[[int, Tensor], Tensor] = lambda _, x: x
    ) -> Tensor:
        for at, block in enumerate(self.blocks):
            stream, read = before(at, stream), block.self_attention
            stream = block.around_self(stream, lambda x, read=read: read(x, causal=True))
            stream = block.around_feed(stream, block.feed_forward)
        return self.score(stream)  # [b, t, c] -> [b, t, 11]


class Encoder(nn.Module):
    """See what stands in each cell, wherever the cell is: [b, 1, 24, 36] -> [b, 6, c]."""

    def __init__(self) -> None:
        super().__init__()
        maps = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(), nn.Flatten(1)]
        self.see = nn.Sequential(*maps, nn.Linear(512, WIDTH), nn.ReLU())
        self.score = nn.Linear(WIDTH, EMPTY + 1)

    def forward(self, images: Tensor) -> Tensor:
        cells = images.unfold(2, CELL, CELL).unfold(3, CELL, CELL).reshape(-1, 1, CELL, CELL)
        return self.see(cells).unflatten(0, (-1, CELLS))


def trained(scale: int) -> tuple[Language, Encoder]:
    """Train both, each by itself, and freeze them."""
    language, encoder = Language(), Encoder()

    def encoder_loss(drawn: Canvases) -> Tensor:
        kinds = torch.full((len(drawn.cells), CELLS + 1), EMPTY)  # one cell more, for "behind"
        kinds.scatter_(1, drawn.cells % (CELLS + 1), drawn.captions[:, :CELLS])
        return F.cross_entropy(encoder.score(encoder(drawn.images)).mT, kinds[:, :CELLS])

    def language_loss(drawn: Canvases) -> Tensor:
        heard, said = language.embed(drawn.captions), begun(language, drawn)
        repeated = language(torch.cat([heard, said], 1))[:, LONGEST:]
        return loss_of(repeated, drawn) + loss_of(language(said), drawn)

    fit("encoder", encoder, 60 * scale, encoder_loss)
    fit("language", language, 40 * scale, language_loss)
    return language, encoder


def begun(language: Language, drawn: Canvases) -> Tensor:
    """Embed what has been said before each word of a caption, [b, 7, c]."""
    return language.embed(F.pad(drawn.captions[:, :-1], (1, 0), value=BEGIN))


def loss_of(scores: Tensor, drawn: Canvases) -> Tensor:
    return F.cross_entropy(scores.mT, drawn.captions, ignore_index=PAD)


def fit(name: str, learner: nn.Module, steps: int, loss: Callable[[Canvases], Tensor]) -> None:
    """Train on canvases of the training half, and freeze."""
    optimizer = torch.optim.AdamW(learner.parameters(), weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps, pct_start=0.1)
    generator = Generator().manual_seed(torch.initial_seed())
    for step in range(1, steps + 1):
        found = loss(canvases(32, "train", generator, distort=True))
        optimizer.zero_grad()
        found.backward()
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % (steps // 5) == 0:
            print(f"{name}: step {step} of {steps}, loss {found:.3f}", file=sys.stderr)
    optimizer.zero_grad()
    learner.eval().requires_grad_(False)


@torch.no_grad()
def say(count: int, guess: Callable[[Tensor], Tensor]) -> Tensor:
    """Say the likeliest words one by one, [b, 7]; `guess` scores what follows words [b, t]."""
    words = torch.full((count, 1), BEGIN)
    for _ in range(LONGEST):
        words = torch.cat([words, guess(words)[:, -1:].argmax(2)], 1)
    return words[:, 1:]
