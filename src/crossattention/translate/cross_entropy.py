"""Smoothed cross-entropy of a linear output layer, a few hundred rows at a time.

    loss = mean_i [ lse(z_i) - (1 - a) z_i[y_i] - a · mean_j z_ij ],   z = rows · weightᵀ

The logits of a whole batch would be its largest tensors by far, and would be written and read many
times. Here each block's gradient is computed while its logits are still in cache, in room that all
blocks share, and only the gradients of rows and weight are kept. Label smoothing: Szegedy et al.
2016, section 7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

BLOCK = 512


def cross_entropy(rows: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Average the smoothed cross-entropy of predicting `target` from `rows`.

    Args:
        rows: `[n, c]`; products are computed in its dtype (or autocast's), sums in float32.
        weight: `[vocabulary, c]`.
        target: int64 `[n]`.
        smoothing: a, the probability spread evenly over the vocabulary.
    Returns:
        A scalar, differentiable once, in rows and weight.

    >>> rows, weight = torch.zeros(3, 2), torch.zeros(8, 2)
    >>> round(cross_entropy(rows, weight, torch.tensor([1, 2, 3]), 0.1).exp().item(), 4)
    8.0
    """
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(torch.get_autocast_dtype(rows.device.type))
    apply: Callable[..., Tensor] = _CrossEntropy.apply
    return apply(rows, weight, target, smoothing)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> Tensor:
        count, vocabulary = max(rows.shape[0], 1), weight.shape[0]
        wide = torch.promote_types(rows.dtype, torch.float32)
        table = weight.to(rows.dtype)
        loss = torch.zeros((), dtype=wide, device=rows.device)
        row_grads = torch.empty_like(rows)
        weight_grad = torch.zeros_like(weight, dtype=wide)
        room = rows.new_empty(min(BLOCK, rows.shape[0]), vocabulary)
        with torch.autocast(rows.device.type, enabled=False):
            blocks = zip(
                rows.split(BLOCK), target.split(BLOCK), row_grads.split(BLOCK), strict=True
            )
            for block, wanted, row_grad in blocks:
                held = room[: len(block)]
                logits = torch.mm(block, table.T, out=held).to(wide)  # [n, c] -> [n, vocabulary]
                right = logits.gather(1, wanted[:, None])
                even = logits.mean(1, keepdim=True)
                top = logits.amax(1, keepdim=True)
                grad = logits.sub_(top).exp_()
                total = grad.sum(1, keepdim=True)
                loss += (total.log() + top - (1 - smoothing) * right - smoothing * even).sum()
                grad.div_(total).sub_(smoothing / vocabulary)
                grad.scatter_add_(1, wanted[:, None], torch.full_like(right, smoothing - 1))
                narrow = grad.to(rows.dtype)
                torch.mm(narrow, table, out=row_grad)
                if narrow.dtype == wide:
                    weight_grad.addmm_(narrow.T, block)
                else:
                    weight_grad += narrow.T @ block  # summed over blocks at full width
        ctx.save_for_backward(row_grads.div_(count), weight_grad.div_(count))
        return loss / count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        row_grads, weight_grad = ctx.saved_tensors
        return row_grads * upstream.to(row_grads.dtype), weight_grad * upstream, None, None
