"""Fold query sequences and heads onto the query axis, so that each key is met once.

    query [b, h, t, d] -> [m, g, n·r·t, d],   n query sequences a memory, r = h / g heads a key head

Masks follow, and a folded result unfolds the same way back. It obeys the law of sharing: the same
numbers as giving each query sequence its own copy of the memory.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from crossattention.kernels.contract import Problem
from crossattention.mask import both


class Folded(NamedTuple):
    """A problem whose batch is its memories and whose heads are its key heads.

    query [m, g, n·r·t, d]; visible and bias of rank 4, each axis full or 1.
    """

    query: Tensor
    visible: Tensor | None
    bias: Tensor | None
    offset: Tensor | None
    reads: Tensor | None
    problem: Problem

    def unfold(self, result: Tensor) -> Tensor:
        """Give each query sequence and head its rows back: [m, g, n·r·t, x] -> [b, h, t, x]."""
        if _is_folded(self.problem):
            return result
        b, m, h, g, t, _, _, _ = self.problem.sizes
        owner = self.problem.owner
        n = 1 if owner is None else owner.per_memory
        split = result.view(m, g, n, h // g, t, result.shape[-1])
        back = split.transpose(1, 2).reshape(m * n, h, t, result.shape[-1])
        return back if owner is None or owner.place is None else back[owner.place]


def fold(problem: Problem) -> Folded:
    """Fold a problem; a view where the owner is in equal blocks and t is 1."""
    mask, score = problem.mask, problem.score
    rows = None if mask.rows is None else mask.rows[:, None, None, :]  # [m, s] -> [m, 1, 1, s]
    if _is_folded(problem):
        visible = both(rows, mask.visible)
        return Folded(problem.query, visible, mask.bias, score.offset, mask.reads, problem)
    visible = _folded_mask(mask.visible, problem)
    reads, owner = _folded_mask(mask.reads, problem), problem.owner
    if owner is not None and owner.unread is not None:
        # Queries that only fill the place of a memory's readers read nothing: its masks are not
        # theirs, and might hide every row from them.
        reads = both(reads, ~owner.unread[:, None, None, None])  # [m] -> [m, 1, 1, 1]
    return Folded(
        query=_folded(problem.query, problem),
        visible=both(rows, visible),
        bias=_folded_mask(mask.bias, problem),
        offset=_folded_mask(score.offset, problem),
        reads=reads,
        problem=problem,
    )


def _is_folded(problem: Problem) -> bool:
    """Whether each query sequence reads its own memory, and each head its own memory head."""
    owner = problem.owner
    if owner is not None and owner.slots is not None:
        return False
    return problem.query.shape[:2] == problem.key.shape[:2]


def _folded_mask(mask: Tensor | None, problem: Problem) -> Tensor | None:
    if mask is None or mask.shape[:3] == (1, 1, 1):  # the same for every query row
        return mask
    return _folded(mask, problem)


def _folded(tensor: Tensor, problem: Problem) -> Tensor:
    """Fold [b|1, h|1, t|1, x] to [m|1, g|1, n·r·t|1, x]."""
    b, m, h, g, t, _, _, _ = problem.sizes
    owner = problem.owner
    n = 1 if owner is None else owner.per_memory
    heads, groups = (h, g) if tensor.shape[1] == h else (h // g, 1)
    whole = tensor.expand(b, heads, t, tensor.shape[-1])
    if owner is not None and owner.slots is not None:
        whole = whole[owner.slots.flatten()]  # [b, ...] -> [m * n, ...]
    split = whole.unflatten(0, (m, n)).unflatten(2, (groups, heads // groups))
    folded: Tensor = split.transpose(1, 2).flatten(2, 4)  # [m, n, g, r, t, x] -> [m, g, n·r·t, x]
    return folded
