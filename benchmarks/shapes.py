"""The shapes that attention is asked for in practice, by what they are found in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """One reading: `beams` query sequences read each of `memories` memories of `s` rows.

    Attributes:
        kind: what such shapes are found in.
        heads, t, s, width: h, query rows of one sequence, memory rows, and d = e.
    """

    kind: str
    memories: int
    heads: int
    t: int
    s: int
    width: int = 64
    beams: int = 1

    @property
    def products(self) -> int:
        """Count the multiply-adds of both products."""
        return self.memories * self.beams * self.heads * self.t * self.s * 2 * self.width

    def __str__(self) -> str:
        """Write sizes as batch × beams, heads, query rows over memory rows, width."""
        lanes = f"{self.memories}×{self.beams}" if self.beams > 1 else str(self.memories)
        return f"{self.kind} {lanes}, {self.heads}, {self.t}/{self.s}, {self.width}"


# (memories, heads, query rows, memory rows, width of a head)
SINGLE = {
    "decode": (
        (1, 8, 1, 30, 64), (1, 4, 1, 30, 64), (1, 8, 1, 500, 64), (1, 12, 1, 577, 64),
        (1, 8, 1, 1500, 64), (1, 16, 1, 1024, 64), (1, 20, 1, 1500, 64), (1, 8, 1, 4096, 128),
        (4, 8, 1, 500, 64), (8, 8, 1, 30, 64), (8, 8, 1, 500, 64), (8, 8, 1, 1500, 64),
        (8, 16, 1, 1024, 64), (32, 4, 1, 30, 64), (32, 8, 1, 30, 64), (32, 8, 1, 500, 64),
        (8, 8, 1, 577, 96), (4, 12, 1, 257, 80),
    ),
    "small batch": (
        (1, 8, 4, 64, 64), (1, 8, 8, 256, 64), (1, 8, 16, 500, 64), (1, 12, 16, 197, 64),
        (1, 8, 5, 1500, 64), (1, 16, 8, 1024, 64), (2, 8, 4, 500, 64), (2, 8, 16, 257, 64),
        (2, 4, 20, 30, 64), (4, 8, 8, 100, 64), (1, 4, 20, 30, 64), (1, 8, 10, 1500, 128),
    ),
    "translate": (
        (32, 4, 10, 10, 64), (32, 8, 20, 30, 64), (32, 4, 30, 30, 64), (64, 8, 25, 25, 64),
        (16, 8, 60, 60, 64), (64, 4, 12, 14, 64), (8, 16, 100, 110, 64), (128, 4, 16, 16, 64),
    ),
    "caption": (
        (8, 12, 20, 50, 64), (8, 12, 20, 197, 64), (8, 12, 32, 257, 64), (4, 12, 30, 577, 64),
        (16, 8, 16, 196, 64), (2, 16, 64, 1025, 64), (8, 16, 32, 257, 88),
    ),
    "Perceiver": (
        (1, 8, 64, 2048, 64), (1, 1, 128, 4096, 64), (1, 8, 256, 2048, 32), (4, 8, 64, 1024, 64),
        (1, 16, 64, 4096, 96), (2, 1, 256, 3136, 128), (8, 8, 32, 729, 96),
    ),
    "long": (
        (1, 8, 512, 4096, 64), (1, 8, 1024, 1024, 64), (2, 8, 512, 1500, 64),
        (1, 4, 2048, 2048, 64), (1, 8, 300, 3000, 80),
    ),
}  # fmt: skip
# (memories, beams, heads, memory rows, width of a head); one query row each
BEAMS = (
    (1, 4, 8, 30, 64), (1, 5, 8, 500, 64), (1, 5, 8, 1500, 64), (1, 10, 8, 1500, 64),
    (1, 5, 16, 1024, 64), (4, 5, 8, 1500, 64), (8, 4, 8, 30, 64), (8, 5, 8, 500, 64),
    (8, 5, 8, 1500, 64), (32, 4, 4, 30, 64), (32, 5, 8, 30, 64), (32, 4, 8, 100, 64),
    (8, 5, 12, 257, 80),
)  # fmt: skip
SHAPES = (
    *(Shape(kind, *sizes) for kind, found in SINGLE.items() for sizes in found),
    *(Shape("beams", m, h, 1, s, width, beams) for m, beams, h, s, width in BEAMS),
)
QUICK = tuple(
    min((each for each in SHAPES if each.kind == kind), key=lambda each: each.products)
    for kind in (*SINGLE, "beams")
    if kind not in ("Perceiver", "long")
)
# Shapes of few query rows, where a kernel is limited by reading the memory.
FEW = ("decode", "beams", "small batch")
