"""Merge what was read from parts of a memory into what reading the whole would have given.

    lse = log sum_p exp(lse_p),   value = sum_p exp(lse_p - lse) value_p

Exact, associative, differentiable; a part in which nothing was visible weighs nothing. Paper:
Milakov & Gimelshein 2018, "Online normalizer calculation for softmax".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from crossattention.errors import ContractError, complaint


def merge(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Merge (value, lse) pairs over disjoint parts of one memory.

    Args:
        parts: one or more pairs of value `[..., t, e]` and lse `[..., t]`, as `attend_with_lse`
            returns them.
    Returns:
        value `[..., t, e]` in the first value's dtype, and lse `[..., t]`.
    Raises:
        ContractError: no parts, or parts of unequal shapes.

    >>> one = (torch.tensor([[2.0]]), torch.tensor([0.0]))
    >>> merge([one, (torch.tensor([[4.0]]), torch.tensor([0.0]))])[0].item()
    3.0
    """
    if not parts:
        raise ContractError(complaint("parts", "one or more", "none", "pass (value, lse) pairs"))
    value_shape = parts[0][0].shape
    for value, lse in parts:
        if value.shape != value_shape or lse.shape != value_shape[:-1]:
            given = f"value {list(value.shape)} and lse {list(lse.shape)}"
            want = f"of shapes {list(value_shape)} and {list(value_shape[:-1])}"
            do = "parts hold the same query rows; gather or pad them first"
            raise ContractError(complaint("parts", want, given, do))
    lses = torch.stack([lse for _, lse in parts])  # p parts of [..., t] -> [p, ..., t]
    if not lses.is_floating_point() or lses.dtype.itemsize < 4:
        lses = lses.float()
    empty = (lses == -torch.inf).all(0)
    # Where every part is empty the shares are computed from zeros, then erased: no inf - inf.
    total = torch.logsumexp(lses.masked_fill(empty, 0), 0)
    share = (lses.masked_fill(empty, 0) - total).exp().masked_fill(empty, 0)
    values = torch.stack([value for value, _ in parts]).to(lses.dtype)
    # A part that read nothing holds zeros, whatever its share.
    merged = (share[..., None] * values).sum(0)  # [p, ..., t, e] -> [..., t, e]
    return merged.to(parts[0][0].dtype), total.masked_fill(empty, -torch.inf)
