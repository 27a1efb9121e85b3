"""The readings that a machine is measured on: the shapes in which memories are read in practice.

    decoding, beams, small batches, translation, captions, Perceivers, long on long, folded queries

Few and many query rows over short and long memories, with and without lengths and biases, so that
each term of a cost stands out somewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from crossattention.kernels.contract import Problem, Score
from crossattention.mask import Mask
from crossattention.owner import Owner


@dataclass(frozen=True)
class Sample:
    """One reading's sizes.

    Attributes:
        memories, beams: m, and query sequences that read each.
        heads, memory_heads: h and g.
        queries, rows: t and s.
        width: d = e.
        mask: "none", "lengths", from half of the rows to all, or "bias".

    >>> Sample(2, 3, 4, 4, 1, 50, 8).problem(torch.float32).sizes
    (6, 2, 4, 4, 1, 50, 8, 8)
    """

    memories: int
    beams: int
    heads: int
    memory_heads: int
    queries: int
    rows: int
    width: int
    mask: str = "none"

    def problem(self, dtype: torch.dtype) -> Problem:
        """Make it of ones and fractions: what the numbers are does not change what they cost."""
        m, b, h, g = self.memories, self.memories * self.beams, self.heads, self.memory_heads
        query = _numbers(b, h, self.queries, self.width).to(dtype)
        key = _numbers(m, g, self.rows, self.width).to(dtype)
        value = _numbers(m, g, self.rows, self.width).to(dtype)
        owner = None
        if self.beams > 1:
            owner = Owner.of(torch.arange(m).repeat_interleave(self.beams), m)
        mask = Mask()
        if self.mask == "lengths":
            lengths = torch.linspace(self.rows, self.rows // 2, m).long()
            mask = Mask(lengths=lengths)
        elif self.mask == "bias":
            mask = Mask(bias=_numbers(1, h, self.queries, self.rows).to(dtype))
        return Problem(query, key, value, owner, mask, Score(self.width**-0.5))


def _numbers(*shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 251 / 251).view(shape)


SAMPLES = tuple(
    Sample(*sizes)
    for sizes in (
        # decoding, one row at a time
        (1, 1, 8, 8, 1, 24, 64), (1, 1, 8, 8, 1, 400, 64), (1, 1, 12, 12, 1, 1400, 64, "bias"),
        (1, 1, 16, 4, 1, 2000, 128), (4, 1, 8, 8, 1, 300, 64, "lengths"), (6, 1, 8, 8, 1, 40, 64),
        (6, 1, 12, 12, 1, 1200, 64), (24, 1, 8, 8, 1, 400, 64, "lengths"),
        (32, 1, 4, 4, 1, 24, 64, "lengths"), (6, 1, 8, 8, 1, 700, 96), (2, 1, 20, 20, 1, 3000, 64),
        # beams
        (1, 4, 8, 8, 1, 40, 64), (1, 6, 8, 8, 1, 1400, 64), (6, 4, 8, 8, 1, 600, 64, "lengths"),
        (24, 4, 8, 8, 1, 30, 64), (24, 5, 4, 4, 1, 90, 64, "lengths"), (4, 5, 12, 12, 1, 300, 80),
        # small batches
        (1, 1, 8, 8, 4, 80, 64), (1, 1, 12, 12, 8, 300, 64, "bias"), (1, 1, 8, 8, 12, 900, 64),
        (2, 1, 8, 8, 6, 600, 64, "lengths"), (4, 1, 8, 8, 16, 120, 64), (1, 1, 4, 4, 24, 24, 64),
        # translation and captions
        (24, 1, 4, 4, 12, 12, 64), (32, 1, 8, 8, 24, 28, 64, "lengths"),
        (48, 1, 4, 4, 28, 24, 64, "bias"), (12, 1, 8, 8, 64, 56, 64), (96, 1, 4, 4, 14, 18, 64),
        (8, 1, 12, 12, 24, 197, 64), (8, 1, 12, 12, 20, 60, 64, "lengths"),
        (4, 1, 16, 16, 32, 290, 88, "bias"),
        # Perceivers, and long on long
        (1, 1, 8, 8, 64, 1800, 64), (1, 1, 1, 1, 200, 3000, 96),
        (4, 1, 8, 8, 48, 800, 64, "lengths"),
        (1, 1, 8, 8, 400, 1500, 64), (1, 1, 4, 4, 1200, 1200, 64, "bias"),
        # queries folded through a key projection: one head of rows for all
        (1, 1, 8, 1, 1, 40, 512), (1, 1, 8, 1, 4, 1200, 512), (6, 1, 8, 1, 1, 300, 512),
        (6, 1, 8, 1, 16, 60, 512), (1, 1, 4, 1, 24, 300, 256), (6, 1, 16, 1, 2, 200, 1024),
    )
)  # fmt: skip
