"""One reading of the grid, with real tensors: as this library, and as others, would do it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

import crossattention as xa
from benchmarks.shapes import Shape
from crossattention.attention.explain import Explanation

MASKS = ("none", "lengths", "bias")


@dataclass(frozen=True)
class Reading:
    """Tensors of one shape, dtype and mask.

    Attributes:
        query: [m·beams, h, t, d].
        key, value: [m, h, s, d].
        lengths: int64 [m], where the mask is "lengths": from half of s to all of it.
        bias: [1, h, t, s], where the mask is "bias": the same for every sequence.
        owner: which memory each query sequence reads; None without beams.
    """

    shape: Shape
    dtype: torch.dtype
    mask: str
    query: Tensor
    key: Tensor
    value: Tensor
    lengths: Tensor | None
    bias: Tensor | None
    owner: xa.Owner | None

    @classmethod
    def of(cls, shape: Shape, dtype: torch.dtype, mask: str) -> Reading:
        """Draw the tensors."""
        m, h, s, d = shape.memories, shape.heads, shape.s, shape.width
        query = torch.randn(m * shape.beams, h, shape.t, d).to(dtype)
        key, value = torch.randn(m, h, s, d).to(dtype), torch.randn(m, h, s, d).to(dtype)
        lengths = None
        if mask == "lengths":
            lengths = torch.linspace(s if m > 1 else 0.75 * s, (s + 1) // 2, m).long()
        bias = torch.randn(1, h, shape.t, s).to(dtype) if mask == "bias" else None
        owner = None
        if shape.beams > 1:
            owner = xa.Owner.of(torch.arange(m).repeat_interleave(shape.beams), m)
        return cls(shape, dtype, mask, query, key, value, lengths, bias, owner)

    @cached_property
    def explained(self) -> Explanation:
        """What each of our kernels says of it."""
        return xa.explain(
            self.query, self.key, self.value, lengths=self.lengths, bias=self.bias,
            owner=self.owner,
        )  # fmt: skip

    @property
    def kernels(self) -> list[str]:
        """Name our own kernels that accept this reading, but for those that cannot be the best.

        Left out is what the shipped table puts at more than 20 times the chosen one's seconds: the
        definition, over long memories, takes minutes.
        """
        costs = {each.name: each for each in self.explained.kernels if not each.refusals}
        most = 20 * min(each.seconds for each in costs.values())
        return [name for name, each in costs.items() if each.seconds <= most]

    def attend(self, kernel: str) -> Tensor:
        """Read by this library."""
        return xa.attend(
            self.query, self.key, self.value, lengths=self.lengths, bias=self.bias,
            owner=self.owner, kernel=kernel,
        )  # fmt: skip

    def fused(self) -> Tensor:
        """Read by torch's fused call, beams folded into query rows."""
        return self._unfolded(
            F.scaled_dot_product_attention(self._folded, self.key, self.value, self._mask)
        )

    def fused_copied(self) -> Tensor:
        """Read, by torch's fused call, a memory that was copied for each beam beforehand."""
        return F.scaled_dot_product_attention(self.query, *self._copies)

    def products(self) -> Tensor:
        """Read by two matrix products and a softmax, beams folded into query rows."""
        scores = self._folded @ self.key.transpose(-1, -2) * self.shape.width**-0.5
        if self._mask is not None and self._mask.dtype == torch.bool:
            scores = scores.masked_fill(~self._mask, -math.inf)
        elif self._mask is not None:
            scores = scores + self._mask
        return self._unfolded(scores.softmax(-1) @ self.value)

    @cached_property
    def _mask(self) -> Tensor | None:
        if self.lengths is None:
            return self.bias
        column = torch.arange(self.shape.s)
        return (column < self.lengths[:, None])[:, None, None]  # [m] -> [m, 1, 1, s]

    @cached_property
    def _folded(self) -> Tensor:
        if self.shape.beams == 1:
            return self.query
        split = self.query.view(-1, self.shape.beams, *self.query.shape[1:])
        return split[:, :, :, 0].transpose(1, 2).contiguous()  # [m, beams, h, 1, d] -> [m, h, t, d]

    @cached_property
    def _copies(self) -> tuple[Tensor, Tensor, Tensor | None]:
        beams, mask = self.shape.beams, self._mask
        if mask is not None and mask.shape[0] > 1:
            mask = mask.repeat_interleave(beams, 0)
        return self.key.repeat_interleave(beams, 0), self.value.repeat_interleave(beams, 0), mask

    def _unfolded(self, read: Tensor) -> Tensor:
        if self.shape.beams == 1:
            return read
        return read.transpose(1, 2).flatten(0, 1)[:, :, None]  # [m, h, beams, d] -> [b, h, 1, d]
