"""Merge what was read from parts of a memory into what reading the whole would have given.

    lse = log sum_p exp(lse_p),   value = sum_p exp(lse_p - lse) value_p

Exact, associative, differentiable; a part in which nothing was visible weighs nothing. Paper:
Milakov & Gimelshein 2018, "Online normalizer calculation for softmax".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from crossattention.argument import FLOATS, check_tensor
from crossattention.errors import ContractError, complaint, describe


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
    _check(parts)
    lses = torch.stack([lse for _, lse in parts])  # p parts of [..., t] -> [p, ..., t]
    if lses.dtype.itemsize < 4:
        lses = lses.float()
    empty = (lses == -torch.inf).all(0)
    # Where every part is empty the shares are computed from zeros, then erased: no inf - inf.
    total = torch.logsumexp(lses.masked_fill(empty, 0), 0)
    # Not exp(lse - total): rounded totals of large scores would let shares sum to more than 1.
    share = torch.softmax(lses.masked_fill(empty, 0), 0).masked_fill(empty, 0)
    values = torch.stack([value for value, _ in parts]).to(lses.dtype)
    # A part that read nothing holds zeros, whatever its share.
    merged = (share[..., None] * values).sum(0)  # [p, ..., t, e] -> [..., t, e]
    return merged.to(parts[0][0].dtype), total.masked_fill(empty, -torch.inf)


def _check(parts: Sequence[tuple[Tensor, Tensor]]) -> None:
    do = "pass (value, lse) pairs, as attend_with_lse returns them"
    if not isinstance(parts, Sequence) or not parts:
        raise ContractError(complaint("parts", "a list of one or more", describe(parts), do))
    for part in parts:
        if not isinstance(part, Sequence) or len(part) != 2:
            raise ContractError(complaint("parts", "made of pairs", describe(part), do))
        for name, each in zip(("value", "lse"), part, strict=True):
            check_tensor(f"parts` and `{name}", each, FLOATS, "float tensors", do)
    first, places = parts[0][0], {each.device for part in parts for each in part}
    if first.dim() == 0 or len(places) > 1:
        want, given = "rows [..., t, e] on one device", f"{describe(first)} on {places}"
        raise ContractError(complaint("parts", want, given, do))
    for value, lse in parts:
        if value.shape != first.shape or lse.shape != first.shape[:-1]:
            given = f"value of shape {list(value.shape)} and lse of shape {list(lse.shape)}"
            want = f"of shapes {list(first.shape)} and {list(first.shape[:-1])}"
            do = "parts hold the same query rows; gather or pad them first"
            raise ContractError(complaint("parts", want, given, do))
