"""The definition once more, written for the laws: it shares no line with what it judges.

    value = sum_s w_s v_s,   w = softmax over the visible s of cap(scale · q·k) + bias

Always in float64; differentiable, an empty row having value 0, lse -inf and no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Defined:
    """What must come out: value [b, h, t, e], lse [b, h, t], weights [b, h, t, s], all float64."""

    value: Tensor
    lse: Tensor
    weights: Tensor


def define(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    owner: list[int],
    visible: Tensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    softcap: float | None = None,
) -> Defined:
    """Define a reading of query [b, h, t, d], key [m, g, s, d], value [m, g, s, e]."""
    query, key, value = (each.double() for each in (query, key, value))
    repeats = query.shape[1] // key.shape[1]
    group = torch.arange(query.shape[1], device=key.device) // repeats
    key, value = key[owner][:, group], value[owner][:, group]  # [m, g, ...] -> [b, h, ...]
    width = query.shape[-1]
    factor = scale if scale is not None else (width**-0.5 if width else 1.0)
    score = torch.einsum("bhtd,bhsd->bhts", query, key) * factor
    if softcap is not None:
        score = softcap * torch.tanh(score / softcap)
    visible = visible.expand(score.shape)
    if bias is not None:
        bias = bias.double().expand(score.shape)
        visible = visible & (bias != -torch.inf)
        score = score + torch.where(visible, bias, 0)
    empty = ~visible.any(-1, keepdim=True)
    top = score.new_zeros((*score.shape[:3], 1))
    if score.numel():
        top = score.detach().masked_fill(~visible, -torch.inf).amax(-1, keepdim=True)
    top = torch.where(empty, 0, top)
    power = torch.where(visible, score - top, -torch.inf).exp()
    total = power.sum(-1, keepdim=True)
    total = torch.where(empty, 1, total)
    weights = power / total
    lse = torch.where(empty, -torch.inf, total.log() + top)[..., 0]
    return Defined(weights @ value, lse, weights)
