"""The native reading as a registered operator: `torch.ops.crossattention.native_read`.

Registered, so that it can be traced, compiled and exported; the library is called through its plain
C interface with addresses, sizes and strides, and no tensor is folded, copied or expanded for it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from crossattention.errors import NoKernelError
from crossattention.kernels.native.library import INSTRUCTIONS, best, load

SCHEMA = (
    "native_read(Tensor query, Tensor key, Tensor value, Tensor? rows, Tensor? visible,"
    " Tensor? bias, Tensor? offset, Tensor? owner, float scale, float softcap, bool wants_lse,"
    " int instructions) -> (Tensor, Tensor)"
)
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.bool: 3}
NOTHING = (0,) * 6
LAYOUT = struct.Struct("8q2d52q")
LIBRARY = torch.library.Library("crossattention", "FRAGMENT")


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
) -> tuple[Tensor, Tensor]:
    """Read [b, h, t, d] over [m, g, s, d] and [m, g, s, e]; also give lse [b, h, t], or nothing.

    >>> x, none = torch.ones(1, 1, 1, 2), None
    >>> arguments = (x, x, x, none, none, none, none, none, 1.0, 0.0, False, 0)
    >>> fake = torch.ops.crossattention.native_read(
    ...     *(each.to("meta") if isinstance(each, Tensor) else each for each in arguments)
    ... )
    >>> fake[0].shape
    torch.Size([1, 1, 1, 2])
    """
    if torch.is_grad_enabled():
        _refuse_gradients((query, key, value, bias, offset))
    library = load()
    if isinstance(library, str):
        raise NoKernelError(f"kernel `native` cannot run: {library}.")
    (b, h, t, d), (m, g, s, e) = query.shape, value.shape
    output, lse = empty(query, value, wants_lse)
    # What has no rows, heads or queries is filled without a call.
    if m == 0 or s == 0 or output.numel() == 0 and lse.numel() == 0:
        return output.zero_(), lse.fill_(-torch.inf)
    told = LAYOUT.pack(
        b, m, h, g, t, s, d, e, scale, softcap,
        query.data_ptr(), DTYPES[query.dtype], *query.stride(),
        key.data_ptr(), DTYPES[key.dtype], *key.stride(),
        value.data_ptr(), DTYPES[value.dtype], *value.stride(),
        *_shared(visible), *_shared(bias), *_shared(offset), *_shared(rows),
        output.data_ptr(), DTYPES[output.dtype], *output.stride(),
        lse.data_ptr() if wants_lse else 0, 0 if owner is None else owner.data_ptr(),
        torch.get_num_threads(), number(best()) if instructions < 0 else instructions,
    )  # fmt: skip
    if library.crossattention_read(told):
        raise MemoryError("kernel `native` found no memory for its threads")
    return output, lse


def empty(query: Tensor, value: Tensor, wants_lse: bool) -> tuple[Tensor, Tensor]:
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
    size = (b, h, t) if wants_lse else (0,)
    return output, torch.empty(size, dtype=torch.float32, device=query.device)


def _fake(
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
) -> tuple[Tensor, Tensor]:
    if torch.is_grad_enabled():
        _refuse_gradients((query, key, value, bias, offset))
    return empty(query, value, wants_lse)


def _refuse_gradients(given: Sequence[Tensor | None]) -> None:
    if any(x is not None and x.requires_grad for x in given):
        raise NoKernelError(
            "kernel `native` has no gradient. Call it under torch.no_grad(), or pass "
            'kernel="matmul" or kernel="fused".'
        )


def _shared(tensor: Tensor | None) -> tuple[int, ...]:
    """Tell address, dtype and strides of a mask; an axis of one entry is shared by all."""
    if tensor is None:
        return NOTHING
    strides = [
        0 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return tensor.data_ptr(), DTYPES[tensor.dtype], *strides, *(0,) * (4 - len(strides))


def number(instructions: str | None) -> int:
    """Give the operator's number of an instruction set; None is the widest, found when it runs.

    >>> number("avx2"), number(None)
    (1, -1)
    """
    return -1 if instructions is None else INSTRUCTIONS.index(instructions)


LIBRARY.define(SCHEMA, tags=(torch.Tag.needs_fixed_stride_order,))
LIBRARY.impl("native_read", read, "CPU")
torch.library.register_fake("crossattention::native_read", _fake, lib=LIBRARY)
