"""One call of the library's plain C interface: addresses, sizes and strides, written side by side.

No tensor is folded, copied or expanded for it. What is written is `Problem` of source/layout.h.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from crossattention.kernels.native.library import INSTRUCTIONS, best, loaded

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.bool: 3, torch.int64: 4}
_NOTHING = (0,) * 6
_LAYOUT = struct.Struct("8q2d52q")


def read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: Tensor | None,
    visible: Tensor | None,
    bias: Tensor | None,
    offset: Tensor | None,
    owner: Tensor | None,
    scale: float,
    softcap: float,
    wants_lse: bool,
    instructions: int,
) -> tuple[Tensor, Tensor | None]:
    """Read [b, h, t, d] over [m, g, s, d] and [m, g, s, e]; also give lse [b, h, t], or None.

    `rows` says which memory rows are real, bool [m, s], or how many from the first, int64 [m].

    >>> from crossattention.kernels.native.library import absent
    >>> x, none = torch.ones(1, 1, 1, 2), None
    >>> run = lambda: read(x, x, x, none, none, none, none, none, 1.0, 0.0, False, -1)
    >>> absent() != "" or run()[0].tolist() == [[[[1.0, 1.0]]]]
    True
    """
    library = loaded()
    (b, h, t, d), (m, g, s, e) = query.shape, value.shape
    output, lse = empty(query, value, wants_lse)
    # What has no rows, heads or queries is filled without a call.
    if not (m and s and b and h and t and (e or wants_lse)):
        return output.zero_(), None if lse is None else lse.fill_(-torch.inf)
    told = _LAYOUT.pack(
        b, m, h, g, t, s, d, e, scale, softcap,
        query.data_ptr(), DTYPES[query.dtype], *query.stride(),
        key.data_ptr(), DTYPES[key.dtype], *key.stride(),
        value.data_ptr(), DTYPES[value.dtype], *value.stride(),
        *_shared(visible), *_shared(bias), *_shared(offset), *_shared(rows),
        output.data_ptr(), DTYPES[output.dtype], *output.stride(),
        0 if lse is None else lse.data_ptr(), 0 if owner is None else owner.data_ptr(),
        torch.get_num_threads(), number(best()) if instructions < 0 else instructions,
    )  # fmt: skip
    if library.crossattention_read(told):
        raise MemoryError("kernel `native` found no memory for its threads")
    return output, lse


def empty(query: Tensor, value: Tensor, wants_lse: bool) -> tuple[Tensor, Tensor | None]:
    """Make room for the value, in the query's order of axes, and for the log-sum-exp.

    >>> query = torch.ones(2, 5, 3, 4).transpose(1, 2)
    >>> empty(query, query, False)[0].transpose(1, 2).is_contiguous()
    True
    """
    b, h, t, _ = query.shape
    if t > 1 and query.stride(1) < query.stride(2):  # heads lie side by side, as in a layer
        output = query.new_empty(b, t, h, value.shape[-1]).transpose(1, 2)
    else:
        output = query.new_empty(b, h, t, value.shape[-1])
    if not wants_lse:
        return output, None
    return output, query.new_empty(b, h, t, dtype=torch.float32)


def number(instructions: str | None) -> int:
    """Give the library's number of an instruction set; None is the widest, found when it runs.

    >>> number("avx2"), number(None)
    (1, -1)
    """
    return -1 if instructions is None else INSTRUCTIONS.index(instructions)


def _shared(tensor: Tensor | None) -> tuple[int, ...]:
    """Tell address, dtype and strides of a mask; an axis of one entry is shared by all."""
    if tensor is None:
        return _NOTHING
    strides = [
        0 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return tensor.data_ptr(), DTYPES[tensor.dtype], *strides, *(0,) * (4 - len(strides))
