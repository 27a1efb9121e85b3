"""A linear map whose weights were laid out once for the products that inference asks for.

    y = x Wᵀ + b (+ rest, or ReLU)

Torch's plain product lays the weights out anew in every call, which is most of its time where few
rows are mapped. Very few rows go to the native library, which reads the weights where they lie. The
numbers are the same, added in another order: float32 results differ by rounding. For inference on a
CPU: no gradient, and a later change of W is not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from crossattention.kernels.native.linear import linear, maps_few

ROWS = 32  # for about so many rows the weights are laid out; others may be mapped as well
FEW = 32  # up to so many rows, what takes time is the way of the weights from memory


@dataclass(frozen=True, eq=False)
class Packed:
    """Hold the weights of y = x Wᵀ + b, laid out.

    >>> packed = Packed.of(torch.eye(2), None)
    >>> packed(torch.tensor([[3.0, 4.0]])).tolist()
    [[3.0, 4.0]]
    """

    weight: Tensor
    laid_out: Tensor
    bias: Tensor | None
    takes_few: bool  # whether the native library maps rows by this weight

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None) -> Packed:
        """Lay out weights [y, x].

        >>> Packed.of(torch.ones(3, 2), torch.zeros(3)).bias.shape
        torch.Size([3])
        """
        laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS)
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        with torch.no_grad():
            return cls(weight, laid_out, bias, maps_few(weight[:1], weight, bias))

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows [n, x] to [n, y]."""
        if self._is_few(rows):
            return linear(rows, self.weight, self.bias)
        mapped: Tensor = _linear().default(rows, self.laid_out, self.bias, "none", [], "")
        return mapped

    def relu(self, rows: Tensor) -> Tensor:
        """Map rows, and set what is below 0 to 0.

        >>> Packed.of(-torch.eye(2), None).relu(torch.tensor([[3.0, -4.0]])).tolist()
        [[0.0, 4.0]]
        """
        if self._is_few(rows):
            return linear(rows, self.weight, self.bias, relu=True)
        mapped: Tensor = _linear().default(rows, self.laid_out, self.bias, "relu", [], "")
        return mapped

    def plus(self, rows: Tensor, rest: Tensor) -> Tensor:
        """Map rows, and add [n, y].

        >>> Packed.of(torch.eye(2), None).plus(torch.ones(1, 2), torch.ones(1, 2)).tolist()
        [[2.0, 2.0]]
        """
        if self._is_few(rows):
            return linear(rows, self.weight, self.bias, rest)
        mapped: Tensor = _linear().binary(rows, rest, self.laid_out, self.bias, "add")
        return mapped

    def _is_few(self, rows: Tensor) -> bool:
        return self.takes_few and 0 < rows.shape[0] <= FEW


def can_pack(weight: Tensor) -> bool:
    """Whether this torch lays out weights of such a dtype and device.

    >>> can_pack(torch.ones(2, 2, dtype=torch.float64))
    False
    """
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _linear() -> Any:
    return torch.ops.mkldnn._linear_pointwise
