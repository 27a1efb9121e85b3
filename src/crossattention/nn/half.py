"""Weights held in half precision: half the bytes to fetch, the same arithmetic.

    y = x Wᵀ + b,   W widened to float32 as it is read, x and y never narrowed

Results are those of the rounded weights, to rounding in float32: few rows meet the weights where
they lie, for more the weights are widened in each call. For inference: the weights are buffers, so
whoever asks a layer's parameters for its dtype finds that of its bias.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.errors import ContractError, complaint
from crossattention.kernels.native.linear import HALVES, linear, maps_few


class HalfLinear(nn.Module):
    """Map rows [..., x] to [..., y].

    Args:
        given: whose weights are rounded, and whose bias is shared.
        dtype: bfloat16, or float16, which has more digits and less range.
    Raises:
        ContractError: weights too large for the dtype.

    >>> HalfLinear(nn.Linear(3, 2), torch.bfloat16)(torch.ones(5, 3)).dtype
    torch.float32
    """

    weight: Tensor

    def __init__(self, given: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.bias = given.bias
        self.register_buffer("weight", _rounded(given.weight, dtype))

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows."""
        if maps_few(rows, self.weight, self.bias, HALVES):
            return linear(rows, self.weight, self.bias)
        return nn.functional.linear(rows, self.weight.to(rows.dtype), self.bias)


class HalfEmbedding(nn.Module):
    """Look tokens [..] up in a table, as rows [.., c] of float32.

    Args and errors as in `HalfLinear`.

    >>> HalfEmbedding(nn.Embedding(5, 2), torch.float16)(torch.tensor([3, 4, 2])).dtype
    torch.float32
    """

    weight: Tensor

    def __init__(self, given: nn.Embedding, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", _rounded(given.weight, dtype))

    def forward(self, tokens: Tensor) -> Tensor:
        """Look tokens up."""
        return nn.functional.embedding(tokens, self.weight).float()


def check_fits(weight: Tensor, dtype: torch.dtype) -> None:
    """Check that a dtype has the range of weights.

    Raises:
        ContractError: one is beyond it, or not a number.

    >>> check_fits(torch.tensor([6e4]), torch.float16)
    """
    most = torch.finfo(dtype).max
    if not bool((weight.detach().abs() <= most).all()):
        want, do = f"at most {most:g}, as {dtype} holds", "hold them in bfloat16 or float32"
        raise ContractError(complaint("weights", want, "larger ones, or NaN", do))


def _rounded(weight: Tensor, dtype: torch.dtype) -> Tensor:
    check_fits(weight, dtype)
    return weight.detach().to(dtype)
