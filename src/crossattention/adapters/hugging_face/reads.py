"""How one memory is read at every step: what is found out at the first and kept.

A source's padding does not change while it is decoded, nor does the kernel that is cheapest for a
step's shape; so neither is worked out again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from crossattention.attention.choose import choose
from crossattention.kernels.contract import Kernel, Problem, Reading
from crossattention.mask import Mask


@dataclass
class Reads:
    """A memory's mask, found at the first read, and a kernel for each shape of a step.

    Attributes:
        maps: whether weights are returned as well.
    """

    maps: bool = False
    mask: Mask | None = None
    kernels: dict[tuple[object, ...], Kernel] = field(default_factory=dict)

    def fold(self, query: Tensor, memories: int) -> Tensor:
        """Fold the hypotheses of each memory into the query axis."""
        b, h, t, d = query.shape
        if b == memories:
            return query
        split = query.reshape(memories, b // memories, h, t, d).transpose(1, 2)
        return split.reshape(memories, h, -1, d)  # [m, n, h, t, d] -> [m, h, n·t, d]

    def run(self, problem: Problem) -> Reading:
        """Run the kernel that is cheapest for a problem of this shape."""
        query, key = problem.query, problem.key
        shape = (query.shape, key.shape, query.dtype, torch.is_grad_enabled())
        kernel = self.kernels.get(shape)
        if kernel is None:
            kernel = self.kernels[shape] = choose(problem)
        return kernel.run(problem)

    def select(self, memories: Tensor) -> Reads:
        """Give the reads of a choice of memories."""
        if self.mask is None or self.mask.rows is None:
            return Reads(self.maps, self.mask)
        return Reads(self.maps, Mask(self.mask.rows[memories]))

    def rows(self, attention_mask: Tensor | None) -> Mask:
        """Give the mask of all reads: a source's padding is the same at every step."""
        if self.mask is None:
            self.mask = Mask(_rows(attention_mask))
        return self.mask


def _rows(attention_mask: Tensor | None) -> Tensor | None:
    """Say which rows may be read: [m, 1, t, s] -> [m, s], or None where all may."""
    if attention_mask is None:
        return None
    row = attention_mask[:, 0, 0]
    visible = row if row.dtype == torch.bool else row == 0
    return None if bool(visible.all()) else visible
