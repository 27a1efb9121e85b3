"""Canvases of real handwritten digits, and their captions: what three examples look at.

Two to six digits stand in the cells of a 2 x 3 grid, each a little off the middle; the caption is
the digits in reading order, as words. The digits are scikit-learn's (`load_digits`, 8 x 8 pixels),
shuffled once: one fixed half is for training, and no digit of the other is seen before the test.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Generator, Tensor
from torch.nn import functional as F

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
END, BEGIN, PAD = 10, 11, 12
VOCABULARY = (*WORDS, "<end>", "<begin>", "<pad>")
ROWS, COLUMNS, CELL, DIGIT = 2, 3, 12, 8  # cells down and across; pixels of a cell, of a digit
CELLS, FEWEST = ROWS * COLUMNS, 2
LONGEST = CELLS + 1  # words of a caption, its end included


class Canvases(NamedTuple):
    """What is drawn, said and where.

    images: [n, 1, 24, 36], from 0 (paper) to 1 (ink). captions: int64 [n, 7], `END` behind the
    last word and then `PAD`. cells: int64 [n, 6], the cell of each word, -1 behind the last.
    """

    images: Tensor
    captions: Tensor
    cells: Tensor


def halves() -> dict[str, tuple[Tensor, Tensor]]:
    """Split the digits, always alike: pixels [n, 8, 8] from 0 to 1 and labels [n] of each half."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=Generator().manual_seed(0))
    pixels, labels = torch.tensor(data.images)[order].float() / 16, torch.tensor(data.target)[order]
    middle = len(order) // 2
    train, held_out = slice(None, middle), slice(middle, None)
    return {
        "train": (pixels[train], labels[train]),
        "held out": (pixels[held_out], labels[held_out]),
    }


HALVES = halves()


def canvases(
    count: int, half: str, generator: Generator, *, distort: bool = False, crowded: float = 0.0
) -> Canvases:
    """Draw canvases with digits of one half, "train" or "held out".

    distort: whether digits are turned, scaled, sheared and bent. crowded: the share of canvases
    that have no empty cell whatever the draw says, from 0 to 1.
    """
    pixels, labels = HALVES[half]
    chosen = torch.randint(len(labels), (count, CELLS), generator=generator)
    words = torch.randint(FEWEST, CELLS + 1, (count, 1), generator=generator)
    words[torch.rand(count, generator=generator) < crowded] = CELLS
    filled = torch.rand(count, CELLS, generator=generator).argsort(1) < words
    drawn = place(pixels[chosen.flatten()], generator, distort).unflatten(0, (count, CELLS))
    drawn = drawn * filled[:, :, None, None]  # [n, 6, 12, 12]
    grid = drawn.unflatten(1, (ROWS, COLUMNS)).transpose(2, 3)  # -> [n, 2, 12, 3, 12]
    images = grid.reshape(count, 1, ROWS * CELL, COLUMNS * CELL)
    cells = torch.arange(CELLS).where(filled, CELLS).sort(1).values  # filled ones first, in order
    spoken = cells < CELLS
    captions = labels[chosen].gather(1, cells % CELLS).where(spoken, PAD)
    captions = F.pad(captions, (0, 1), value=PAD).scatter(1, words, END)  # [n, 6] -> [n, 7]
    return Canvases(images, captions, cells.where(spoken, -1))


def place(digits: Tensor, generator: Generator, distort: bool) -> Tensor:
    """Put each digit up to two pixels off the middle of a cell: [n, 8, 8] -> [n, 12, 12]."""
    n, most = len(digits), (CELL - DIGIT) // 2
    move = torch.randint(-most, most + 1, (n, 2, 1), generator=generator) * 2 / DIGIT
    shape = torch.eye(2).expand(n, 2, 2)
    if distort:
        shape = shape + 0.15 * torch.randn(n, 2, 2, generator=generator)
    affine = torch.cat([shape * CELL / DIGIT, move], 2)  # [n, 2, 2 + 1]
    grid = F.affine_grid(affine, [n, 1, CELL, CELL], align_corners=False)
    if distort:
        bend = 0.1 * torch.randn(n, 2, 4, 4, generator=generator)
        grid = grid + F.interpolate(bend, size=(CELL, CELL), mode="bicubic").movedim(1, -1)
    return F.grid_sample(digits[:, None], grid, align_corners=False)[:, 0]


def score(words: Tensor, captions: Tensor) -> dict[str, Tensor]:
    """Compare words [n, 7] to captions: which share of captions, and of their words, is right."""
    end = words == END
    right = words.masked_fill(end.cumsum(1) > end, PAD) == captions  # nothing follows the end
    return {
        "exact_match": right.all(1).float().mean(),
        "words_right": right[captions < END].float().mean(),
    }


def spell(caption: Tensor) -> str:
    """Write a caption [7] as words, up to its end."""
    tokens = caption.tolist()
    end = tokens.index(END) if END in tokens else len(tokens)
    return " ".join(VOCABULARY[token] for token in tokens[:end])
