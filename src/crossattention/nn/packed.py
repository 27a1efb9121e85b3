"""A linear map whose weights were laid out once for the products that inference asks for.

    y = x Wᵀ + b (+ rest, or ReLU)

Torch's plain product lays the weights out anew in every call, which is most of its time where few
rows are mapped. Very few rows go to the native library, which reads the weights where they lie. The
numbers are the same, added in another order: float32 results differ by rounding. Where half
precision holds every weight exactly, few rows meet them in half the bytes, and nothing is rounded.
Weights that are given in half precision are not laid out: many rows meet a copy that is widened in
the call. For inference on a CPU: no gradient, and a later change of W is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crossattention.kernels.native.linear import HALVES, linear, maps_few
from crossattention.kernels.native.linear import ROWS as MORE

ROWS = 32  # for about so many rows the weights are laid out; others may be mapped as well
FEW = 32  # up to so many rows, what takes time is the way of the weights from memory


@dataclass(frozen=True, eq=False)
class Packed:
    """Hold the weights of y = x Wᵀ + b, laid out.

    >>> packed = Packed.of(torch.eye(2), None)
    >>> packed(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """

    weight: Tensor  # as few rows meet them
    laid_out: Tensor | None  # None: the weights were given in half precision
    bias: Tensor | None
    few: int  # up to so many rows the native library maps

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Packed:
        """Lay out weights [y, x].

        >>> Packed.of(torch.ones(3, 2), torch.zeros(3)).bias.shape
        torch.Size([3])
        """
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        half = weight.dtype in HALVES
        laid_out = None if half else torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        with torch.no_grad():
            takes = maps_few(weight[:1].float(), weight, bias, (torch.float32, *HALVES))
        few = 0 if not takes else MORE if half else FEW
        met = weight if half or not few else _narrowest(weight)
        return cls(met, laid_out, bias, few)

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows [n, x] to [n, y]."""
        if self._is_few(rows):
            return linear(rows, self.weight, self.bias)
        mapped: Tensor = _linear().default(rows, self._laid_out(), self.bias, "none", [], "")
        return mapped

    def relu(self, rows: Tensor) -> Tensor:
        """Map rows, and set what is below 0 to 0.

        >>> Packed.of(-torch.eye(2), None).relu(torch.tensor([[3.0, -4.0]])).tolist()
        [[0.0, 4.0]]
        """
        if self._is_few(rows):
            return linear(rows, self.weight, self.bias, relu=True)
        mapped: Tensor = _linear().default(rows, self._laid_out(), self.bias, "relu", [], "")
        return mapped

    def plus(self, rows: Tensor, rest: Tensor) -> Tensor:
        """Map rows, and add [n, y].

        >>> Packed.of(torch.eye(2), None).plus(torch.ones(1, 2), torch.ones(1, 2)).tolist()
        [[2.0, 2.0]]
        """
        if self._is_few(rows):
            return linear(rows, self.weight, self.bias, rest)
        mapped: Tensor = _linear().binary(rows, rest, self._laid_out(), self.bias, "add")
        return mapped

    def _is_few(self, rows: Tensor) -> bool:
        return 0 < rows.shape[0] <= self.few

    def _laid_out(self) -> Tensor:
        return self.weight.float() if self.laid_out is None else self.laid_out


def can_pack(weight: Tensor) -> bool:
    """Whether this torch lays out weights of such a dtype and device.

    >>> can_pack(torch.ones(2, 2, dtype=torch.float64))
    False
    """
    return (
        weight.device.type == "cpu"
        and weight.dtype in (torch.float32, *HALVES)
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _narrowest(weight: Tensor) -> Tensor:
    """Give weights in half precision if it holds each of them exactly."""
    for dtype in HALVES:
        narrow = weight.to(dtype)
        if torch.equal(narrow.to(weight.dtype), weight):
            return narrow
    return weight


def _linear() -> Any:
    return torch.ops.mkldnn._linear_pointwise
