"""The native reading as a registered operator: `torch.ops.crossattention.native_read`.

Registered, so that it can be traced, compiled, exported and profiled. The operator's own way
through torch takes longer than a short reading, so `read` goes straight to the library where
nothing follows which operators are called.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crossattention.errors import NoKernelError
from crossattention.kernels.native import call
from crossattention.kernels.native.call import Given

SCHEMA = (
    "native_read(Tensor query, Tensor key, Tensor value, Tensor? rows, Tensor? visible,"
    " Tensor? bias, Tensor? offset, Tensor? owner, float scale, float softcap, bool wants_lse,"
    " int instructions) -> (Tensor, Tensor)"
)
LIBRARY = torch.library.Library("crossattention", "FRAGMENT")
PLAIN = (Tensor, torch.nn.Parameter)


def read(
    given: Given, scale: float, softcap: float, wants_lse: bool, instructions: int
) -> tuple[Tensor, Tensor | None]:
    """Read through the operator where it is followed, else at once; as `call.read`.

    >>> x = torch.ones(1, 1, 1, 2, device="meta")
    >>> read(Given(x, x, x), 1.0, 0.0, False, 0)[0].shape
    torch.Size([1, 1, 1, 2])
    """
    how = (scale, softcap, wants_lse, instructions)
    if not is_followed(*given):
        return call.read(given, *how)
    output, lse = torch.ops.crossattention.native_read.default(*given, *how)
    return output, lse if wants_lse else None


def is_followed(*given: Tensor | None) -> bool:
    """Whether a graph, a mode, a profiler or a kind of tensor of its own watches operators.

    >>> is_followed(torch.ones(1), None), is_followed(torch.ones(1, device="meta"))
    (False, True)
    """
    if are_followed():
        return True
    for each in given:  # a loop, as it is asked at every map of a decoder's step
        if each is not None and (type(each) not in PLAIN or not each.is_cpu or each.is_neg()):
            return True
    return False


def are_followed() -> bool:
    """Whether a graph, a mode or a profiler watches operators, whatever they are given.

    >>> are_followed()
    False
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._autograd._profiler_enabled()
    )


def _on_cpu(*given: Any) -> tuple[Tensor, Tensor]:
    _refuse_gradients(*given)
    return _both(*call.read(Given(*given[:8]), *given[8:]))


def _fake(*given: Any) -> tuple[Tensor, Tensor]:
    _refuse_gradients(*given)
    query, _, value, *_, wants_lse, _ = given
    shape = (*query.shape[:3], value.shape[3])
    lse = query.new_empty(shape[:3], dtype=torch.float32) if wants_lse else None
    return _both(call.empty(query, shape, call.lies_merged(query)), lse)


def _both(output: Tensor, lse: Tensor | None) -> tuple[Tensor, Tensor]:
    """Give two tensors, as an operator must: an lse that nobody asked for is an empty one."""
    return output, output.new_empty(0, dtype=torch.float32) if lse is None else lse


def _refuse_gradients(*given: object) -> None:
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in given):
        raise NoKernelError(
            "kernel `native` has no gradient. Call it under torch.no_grad(), or pass "
            'kernel="matmul" or kernel="fused".'
        )


LIBRARY.define(SCHEMA, tags=(torch.Tag.needs_fixed_stride_order,))
LIBRARY.impl("native_read", _on_cpu, "CPU")
torch.library.register_fake("crossattention::native_read", _fake, lib=LIBRARY)
