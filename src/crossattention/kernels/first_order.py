"""Let a kernel that has no second derivative say so, by name, when it is asked for one.

    forward: x   backward: grad   backward of the backward: an error that says what to do

A second derivative is never silently zero, and never torch's own complaint about an operation that
the caller has not called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from crossattention.errors import NoKernelError


def first_order(tensor: Tensor, kernel: str) -> Tensor:
    """Pass an input of a kernel on; its gradient can be used, but not differentiated again.

    A compiled graph has no second derivative anyway, so nothing is put into it.

    >>> x = torch.ones(2, requires_grad=True)
    >>> (grad,) = torch.autograd.grad((first_order(x, "fused") ** 2).sum(), x, create_graph=True)
    >>> torch.autograd.grad(grad.sum(), x)
    Traceback (most recent call last):
    crossattention.errors.NoKernelError: kernel `fused` has no second derivative. \
Pass kernel="matmul" or kernel="reference".
    """
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and tensor.requires_grad):
        return tensor
    apply: Callable[..., Tensor] = _Input.apply
    return apply(tensor, kernel)


class _Input(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(tensor: Tensor, kernel: str) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        ctx.kernel = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        apply: Callable[..., Tensor] = _Gradient.apply
        return apply(grads[0], ctx.kernel), None


class _Gradient(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, kernel: str) -> Tensor:
        return grad.view_as(grad)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str], output: Tensor) -> None:
        ctx.kernel = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        raise NoKernelError(
            f"kernel `{ctx.kernel}` has no second derivative. "
            'Pass kernel="matmul" or kernel="reference".'
        )
