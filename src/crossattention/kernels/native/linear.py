"""A linear map of few rows that reads the weights where they lie: no copy of them, none laid out.

    y = x Wᵀ + b, then no less than 0 if `relu`, then + rest

Torch's product lays weights out anew in every call, or runs on one thread where one row is mapped.
Here each weight row is loaded once and met by all rows; sums are added in another order. Weights
may lie in half precision; they are widened as they are read. What is written is `Map` of
source/layout.h.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from crossattention.kernels.native.call import DTYPES, number
from crossattention.kernels.native.kernel import is_transformed
from crossattention.kernels.native.library import absent, best, loaded
from crossattention.kernels.native.registered import is_followed

ROWS = 256  # beyond about so many, enough rows share what laying the weights out costs
HALVES = (torch.bfloat16, torch.float16)
_PAD = 16  # of x: a multiple of every vector
_LAYOUT = struct.Struct("16q")


def maps_few(
    rows: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    held: tuple[torch.dtype, ...] = (torch.float32,),
) -> bool:
    """Whether `linear` maps these rows [..., x] with weights [y, x]: few float32 rows on a CPU.

    `held` are the dtypes that the weights may have: torch's own product refuses others than the
    rows'.

    >>> maps_few(torch.ones(ROWS + 1, 16), torch.ones(2, 16))
    False
    """
    y, x = weight.shape
    if bias is not None and not (
        bias.dtype is torch.float32 and bias.shape == (y,) and bias.stride(0) == 1
    ):
        return False
    return (
        rows.dtype is torch.float32
        and weight.dtype in held
        and rows.shape[-1] == x
        and x % _PAD == 0
        and weight.stride(1) == 1
        and not torch.is_grad_enabled()
        and not (is_followed(rows, weight, bias) or is_transformed())
        and not torch.is_autocast_enabled("cpu")
        and 0 < rows.numel() <= ROWS * x  # not asked in a graph, which is for any number of rows
        and absent() == ""
        and best() != "portable"  # measured against torch on other vectors alone
    )


def linear(
    rows: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    rest: Tensor | None = None,
    relu: bool = False,
    instructions: str | None = None,
    by_group: bool = False,
) -> Tensor:
    """Map rows [..., x] to [..., y]; ask `maps_few` before.

    Args:
        rows, weight, bias: `[..., x]`, `[y, x]` and `[y]`; weights in float32 or half precision.
        rest: `[..., y]`, added at last.
        relu: whether numbers below 0 become 0 before that.
        instructions: an instruction set; None takes the widest of this processor.
        by_group: whether rows are `[n, g, x]`: each of the outputs' g equal groups maps its own.
    Raises:
        NoKernelError: the library is absent.

    >>> rows = torch.ones(1, 16)
    >>> absent() != "" or linear(rows, -torch.eye(16), rest=rows, relu=True).equal(rows)
    True
    """
    library, (y, x) = loaded(), weight.shape
    rows = rows if by_group and rows.stride(-1) == 1 else rows.contiguous()
    groups = (rows.shape[1], *rows.stride()[:2]) if by_group else (1, x, 0)
    rest = None if rest is None else rest.contiguous()
    output = rows.new_empty(*rows.shape[: -1 - by_group], y)
    told = _LAYOUT.pack(
        rows.numel() // (x * groups[0]), x, y, rows.data_ptr(),
        weight.data_ptr(), DTYPES[weight.dtype], weight.stride(0),
        0 if bias is None else bias.data_ptr(), 0 if rest is None else rest.data_ptr(),
        relu, output.data_ptr(), torch.get_num_threads(), number(instructions or best()), *groups,
    )  # fmt: skip
    library.crossattention_map(told)
    return output
