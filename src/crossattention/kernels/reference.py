"""The definition: everything fast is judged by it.

    value = sum_s w_s v_s,   w = softmax over the visible s of cap(scale·(q·k + offset)) + bias

Each query row is computed from the rows it may read and from nothing else: hidden rows are
replaced by zeros *for that query* before they are multiplied, so they may hold anything. An empty
row gives value 0, lse -inf and zero gradients. Memory use is b·h·t·s·(d + e): an oracle, not a
fast path. In half precision it computes in float32 and rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from crossattention.kernels.contract import Cost, Problem, Reading, plainly
from crossattention.kernels.count import products, traffic


@dataclass(frozen=True)
class Reference:
    """Compute by the definition, at any dtype, differentiable any number of times.

    >>> Reference().name
    'reference'
    """

    name: str = "reference"

    def refuses(self, problem: Problem) -> list[str]:
        """Refuse nothing: it is the definition."""
        return []

    def cost(self, problem: Problem) -> Cost:
        """Count the products twice over: nothing is blocked or reused."""
        b, _, h, _, t, s, d, e = problem.sizes
        return Cost(products(problem), traffic(problem) + 16 * b * h * t * s * (d + e))

    def run(self, problem: Problem) -> Reading:
        """Compute the definition."""
        with plainly(problem.query.device):
            weights, lse = score(problem)
            kept = F.dropout(weights, problem.dropout)
            value = _per_query(problem.value, problem).to(weights.dtype)  # [b, h, t|1, s, e]
            value = value.masked_fill(_hidden(problem)[..., None], 0)
            read = (kept[..., None] * value).sum(-2)  # [b, h, t, s, e] -> [b, h, t, e]
        dtype = problem.query.dtype
        total = kept.sum(-1) if problem.dropout else None
        return Reading(read.to(dtype), lse if problem.wants_lse else None, total)


def score(problem: Problem) -> tuple[Tensor, Tensor]:
    """Compute the weights [b, h, t, s] before dropout, and the log-sum-exp [b, h, t].

    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.zeros(1, 1, 1, 2)
    >>> score(Problem(x, x, x, None, Mask(), Score(1.0)))[0].tolist()
    [[[[1.0]]]]
    """
    dtype = _wide(problem)
    hidden = _hidden(problem)
    key = _per_query(problem.key, problem).to(dtype).masked_fill(hidden[..., None], 0)
    scores = (problem.query.to(dtype)[..., None, :] * key).sum(
        -1
    )  # [b, h, t, s, d] -> [b, h, t, s]
    if problem.score.offset is not None:
        scores = scores + problem.score.offset.to(dtype)
    scores = scores * problem.score.scale
    if problem.score.softcap is not None:
        scores = problem.score.softcap * torch.tanh(scores / problem.score.softcap)
    if problem.mask.bias is not None:
        scores = scores + problem.mask.bias.to(dtype)
    hidden = hidden | (scores == -torch.inf)
    empty = hidden.all(-1, keepdim=True)
    # An empty row is scored as if it could read, then erased: no inf - inf in either direction.
    scores = scores.masked_fill(hidden, -torch.inf).masked_fill(empty, 0)
    weights = torch.softmax(scores, -1).masked_fill(empty, 0)
    if scores.shape[-1] == 0:
        return weights, scores.new_full(scores.shape[:-1], -torch.inf)
    return weights, torch.logsumexp(scores, -1).masked_fill(empty[..., 0], -torch.inf)


def _wide(problem: Problem) -> torch.dtype:
    dtype = torch.promote_types(problem.query.dtype, problem.key.dtype)
    return torch.promote_types(dtype, torch.float32)


def _per_query(kept: Tensor, problem: Problem) -> Tensor:
    """Give each query sequence and head its own rows: [m, g, s, x] -> [b, h, 1, s, x]."""
    owned = kept if problem.owner is None else kept[problem.owner.index]
    return owned.repeat_interleave(problem.query.shape[1] // kept.shape[1], dim=1)[:, :, None]


def _hidden(problem: Problem) -> Tensor:
    b, _, h, _, t, s, _, _ = problem.sizes
    visible = torch.ones(b, h, t, s, dtype=torch.bool, device=problem.query.device)
    if problem.mask.rows is not None:
        rows = (
            problem.mask.rows if problem.owner is None else problem.mask.rows[problem.owner.index]
        )
        visible = visible & rows[:, None, None, :]  # [b, s] -> [b, 1, 1, s]
    if problem.mask.visible is not None:
        visible = visible & problem.mask.visible
    return ~visible
