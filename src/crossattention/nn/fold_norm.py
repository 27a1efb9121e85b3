"""Fold a norm's scale and shift into the linear map behind it.

    W (γ · x̂ + β) + b  =  (W diag γ) x̂ + (W β + b)

The same numbers; what is left of the norm is x̂, which has no parameters, so that layers with norms
of their own can read one memory that is normed once.
"""

from __future__ import annotations

import torch
from torch import nn

from crossattention.errors import ContractError, complaint, describe


def fold_norm(norm: nn.LayerNorm | nn.RMSNorm, linear: nn.Linear) -> nn.Linear:
    """Build the linear map that equals `linear` behind `norm`, for rows that are normed already.

    Args:
        norm: over the last axis, with or without scale and shift; it is read only.
        linear: what follows it; it is read only.
    Returns:
        An `nn.Linear` in the dtype, device and mode of `linear`, with a bias where the norm has a
        shift or `linear` has a bias. It reads what the norm without scale and shift gives.
    Raises:
        ContractError: other modules, or widths that do not agree.

    >>> norm, linear, x = nn.LayerNorm(4), nn.Linear(4, 3), torch.randn(5, 4)
    >>> _ = nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    >>> plain = nn.LayerNorm(4, elementwise_affine=False)
    >>> torch.allclose(fold_norm(norm, linear)(plain(x)), linear(norm(x)), atol=1e-5)
    True
    """
    _check(norm, linear)
    shift = norm.bias if isinstance(norm, nn.LayerNorm) else None
    biased = linear.bias is not None or shift is not None
    like = linear.weight
    folded = nn.Linear(
        linear.in_features, linear.out_features, biased, device=like.device, dtype=like.dtype
    )
    with torch.no_grad():
        scale = 1 if norm.weight is None else norm.weight.to(like.dtype)
        folded.weight.copy_(like * scale)  # [o, c] · [c]
        if biased:
            added = torch.zeros_like(folded.bias) if linear.bias is None else linear.bias
            folded.bias.copy_(added if shift is None else added + like @ shift.to(like.dtype))
    return folded.train(linear.training)


def _check(norm: nn.Module, linear: nn.Module) -> None:
    do = "fold the norm that stands right before the linear map"
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        want = "an nn.LayerNorm or nn.RMSNorm"
        raise ContractError(complaint("norm", want, describe(norm), do))
    if not isinstance(linear, nn.Linear):
        raise ContractError(complaint("linear", "an nn.Linear", describe(linear), do))
    if norm.normalized_shape != (linear.in_features,):
        want = f"over the last axis, of width {linear.in_features}"
        raise ContractError(complaint("norm", want, f"shape {list(norm.normalized_shape)}", do))
