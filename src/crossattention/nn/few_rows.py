"""Call a projection; where few rows meet plain weights, read the weights once and where they lie.

    mapped(W, x) = W(x)

A step of decoding maps one row of each sequence, and most of its time is a product that lays the
weights out anew for them. Nothing is kept between calls, so whatever changes weights is seen. A
module that does more than `nn.Linear`, and rows that the native kernel does not map, are left to
the module. Results agree to rounding.
"""

from __future__ import annotations

from typing import TypeGuard

from torch import Tensor, nn
from torch.nn.modules import module as of_torch

from crossattention.kernels.native.linear import linear, maps_few
from crossattention.nn.raw import is_watched


def mapped(projection: nn.Module, rows: Tensor) -> Tensor:
    """Give `projection(rows)`, [..., x] -> [..., y].

    >>> import torch
    >>> with torch.no_grad():
    ...     mapped(nn.Linear(16, 3), torch.ones(5, 1, 16)).shape
    torch.Size([5, 1, 3])
    """
    if _is_plain(projection):
        weight, bias = projection.weight, projection.bias
        if rows.dim() and maps_few(rows, weight, bias):
            return linear(rows, weight, bias)
    output: Tensor = projection(rows)
    return output


def _is_plain(projection: nn.Module) -> TypeGuard[nn.Linear]:
    return (
        type(projection) is nn.Linear
        and not is_watched(projection)
        and not of_torch._has_any_global_hook()
    )
