"""The raw form: read the memory's rows themselves, and keep no keys and values at all.

    q·(W_k x + b_k) = (W_kᵀ q)·x + q·b_k          the query is folded through the key projection
    sum_s w_s (W_v x_s + b_v) = W_v (sum_s w_s x_s) + b_v · sum_s w_s     and the average mapped

Exactly what reading projected keys and values gives: the key bias is the same for every row of a
score, so only the log-sum-exp and a soft cap see it; the value bias counts by the weights' total,
0 for an empty row. One copy of the rows serves all layers. Papers: Yan et al. 2021, "EL-Attention"
(arXiv 2105.04779); Graef & Wasielewski 2025, "Slim Attention" (arXiv 2503.05840).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.kernels.contract import Reading
from crossattention.kernels.native.linear import linear, maps_few


@dataclass(frozen=True)
class Affine:
    """A linear map made of tensors that belong to another module: W x + b.

    >>> Affine(torch.ones(3, 2))(torch.ones(1, 2)).tolist()
    [[2.0, 2.0, 2.0]]
    """

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows [..., c] -> [..., o]."""
        return F.linear(rows, self.weight, self.bias)


Linear = nn.Linear | Affine
Folding = tuple[Tensor, Tensor | None]  # a folded query [b, h, t, c], and q·b_k [b, h, t, 1]
Fold = Callable[[Tensor, Linear, int], Folding]  # what `fold_query` does, or its equal


def refusals(
    key: nn.Module | Affine,
    value: nn.Module | Affine,
    key_norm: nn.Module,
    rotary: nn.Module | None,
) -> list[str]:
    """List, in words, why these modules cannot be folded into the query and the average.

    >>> refusals(nn.Linear(2, 2), nn.Linear(2, 2), nn.Identity(), None)
    []
    """
    reasons = [] if rotary is None else ["rotary keys are turned after the key projection"]
    if type(key_norm) is not nn.Identity:
        reasons.append("the key norm does not commute with the key projection")
    for name, module in (("key", key), ("value", value)):
        if isinstance(module, Affine):
            continue
        if type(module) is not nn.Linear:
            reasons.append(f"the {name} projection is a {type(module).__name__}, not nn.Linear")
        elif is_watched(module):
            reasons.append(f"the {name} projection has hooks or parametrisations")
    return reasons


def fold_query(query: Tensor, key: Linear, memory_heads: int) -> Folding:
    """Fold a query through the key projection.

    Args:
        query: `[b, h, t, d]`.
        key: the key projection, weight `[g·d, c]`.
        memory_heads: g.
    Returns:
        `[b, h, t, c]`, and q·b_k `[b, h, t, 1]` if the projection has a bias, at least float32:
        like any score, it may lie beyond half precision.

    >>> import torch
    >>> fold_query(torch.ones(1, 4, 3, 2), nn.Linear(5, 4), memory_heads=2)[0].shape
    torch.Size([1, 4, 3, 5])
    """
    _, h, t, _ = query.shape
    grouped = query.unflatten(1, (memory_heads, -1)).flatten(2, 3)  # [b, h, t, d] -> [b, g, r·t, d]
    folded = _product(grouped, key.weight.unflatten(0, (memory_heads, -1)))  # -> [b, g, r·t, c]
    offset = None
    if key.bias is not None:
        wide = torch.promote_types(grouped.dtype, torch.float32)
        bias = key.bias.to(wide).unflatten(0, (memory_heads, 1, -1))  # [g·d] -> [g, 1, d]
        offset = (grouped.to(wide) * bias).sum(-1, keepdim=True)  # -> [b, g, r·t, 1]
        offset = offset.unflatten(2, (h // memory_heads, t)).flatten(1, 2)
    return folded.unflatten(2, (h // memory_heads, t)).flatten(1, 2), offset


def map_average(reading: Reading, value: Linear, memory_heads: int, total: Tensor | None) -> Tensor:
    """Map averaged rows through the value projection.

    Args:
        reading: value `[b, h, t, c]`, the average of the rows.
        value: the value projection, weight `[g·e, c]`.
        memory_heads: g.
        total: `[b|1, h|1, t|1]`, the sum of the weights of each query row; None: 1 for all.
    Returns:
        `[b, h, t, e]`.

    >>> import torch
    >>> average = Reading(torch.ones(1, 4, 3, 5))
    >>> map_average(average, nn.Linear(5, 4), 2, None).shape
    torch.Size([1, 4, 3, 2])
    """
    average, weight, bias = reading.value, value.weight, value.bias
    b, h, t, _ = average.shape
    if h == memory_heads and maps_few(average[:, 0], weight, bias):
        rows = average.transpose(1, 2).flatten(0, 1)  # [b, h, t, c] -> [b·t, h, c]
        mapped = linear(rows, weight, bias if total is None else None, by_group=True)
        mapped = mapped.view(b, t, h, -1).transpose(1, 2)  # [b·t, h·e] -> [b, h, t, e]
        if total is None:
            return mapped
    else:
        grouped = average.unflatten(1, (memory_heads, -1)).flatten(2, 3)  # -> [b, g, r·t, c]
        weight = weight.unflatten(0, (memory_heads, -1))  # [g·e, c] -> [g, e, c]
        each = _product(grouped, weight.mT, turns=_turns(b * grouped.shape[2], weight))
        mapped = each.unflatten(2, (h // memory_heads, t)).flatten(1, 2)
    if bias is None:
        return mapped
    share = bias.view(memory_heads, 1, -1).repeat_interleave(h // memory_heads, 0)  # [h, 1, e]
    if total is not None:
        share = share * total[..., None]  # · [b, h, t, 1]
    return mapped + share.to(mapped.dtype)


def is_watched(module: nn.Module) -> bool:
    """Whether a module's call does more than its class says: hooks, parametrisations.

    >>> is_watched(nn.Linear(2, 2))
    False
    """
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in vars(module)
        or "parametrizations" in module._modules
    )


def _product(rows: Tensor, weight: Tensor, turns: bool = False) -> Tensor:
    """Multiply [b, g, n, x] by [g, x, y] without the copy of the weight for each b that @ makes.

    `turns` computes it as (weightᵀ rowsᵀ)ᵀ: the gradient of a weight that is given on its side then
    lies as the weight does, and is not copied into order.
    """
    b, _, n, _ = rows.shape
    together = rows.transpose(0, 1).flatten(1, 2)  # [b, g, n, x] -> [g, b·n, x]
    # Brought back into order: torch copies weights for each of the rows that lie otherwise.
    product = (weight.mT @ together.mT).mT.contiguous() if turns else together @ weight
    apart: Tensor = product.unflatten(1, (b, n)).transpose(0, 1)
    return apart


def _turns(count: int, weight: Tensor) -> bool:
    """Whether the gradient of weights [g, y, x] is more to bring into order than `count` rows."""
    if torch.compiler.is_compiling():  # a graph is for any number of rows
        return False
    return torch.is_grad_enabled() and weight.requires_grad and count <= weight.shape[1]
