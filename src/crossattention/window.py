"""A window over positions: a query row reads the memory rows that stand near it.

    visible[t, s]  =  -before <= memory_position[s] - query_position[t] <= after

Positions are given for each stream: rows in a document, frames, seconds. Law: only differences
count, so moving both streams together changes nothing. A query with no row in reach reads nothing.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from crossattention.argument import FLOATS, INTEGERS, check_number, check_tensor, on_host
from crossattention.errors import ContractError, complaint, describe

FARTHEST = torch.iinfo(torch.int64).max


def from_window(
    query_positions: Tensor,
    memory_positions: Tensor,
    *,
    before: float | None,
    after: float | None,
) -> Tensor:
    """Turn positions into `visible`: -before <= memory_position - query_position <= after.

    Args:
        query_positions: integers or floats `[t]` or `[b|1, t]`.
        memory_positions: `[s]` or `[b|1, s]`, in the same unit; where memories are shared, those
            of the memory that each query sequence reads: `memory_positions[owner]`.
        before, after: how far back and ahead a query reads, both ends included, 0 or more; None:
            without limit.
    Returns:
        bool `[b|1, 1, t, s]`, True = may be read. Integers are compared exactly, floats in float64.
    Raises:
        ContractError: positions of another kind, rank, batch or device, or not finite; a reach
            below 0.

    >>> row = torch.arange(4)
    >>> from_window(row[1:3], row, before=1, after=0).int().tolist()
    [[[[1, 1, 0, 0], [0, 1, 1, 0]]]]
    """
    query = check_positions("query_positions", query_positions)
    memory = check_positions("memory_positions", memory_positions)
    if (1 not in (len(query), len(memory)) and len(query) != len(memory)) or (
        query.device != memory.device
    ):
        want = f"[s] or [b|1, s], beside query positions {list(query.shape)} on {query.device}"
        do = "give each query sequence the positions of the memory it reads"
        raise ContractError(complaint("memory_positions", want, describe(memory), do))
    exact = not (query.is_floating_point() or memory.is_floating_point())
    kind = torch.int64 if exact else torch.float64
    query, memory = query.to(kind)[:, None, :, None], memory.to(kind)[:, None, None, :]
    distance = memory - query  # [b|1, 1, 1, s] - [b|1, 1, t, 1] -> [b|1, 1, t, s]
    visible = torch.ones_like(distance, dtype=torch.bool)
    if before is not None:
        visible = visible & (distance >= -_reach("before", before, exact))
    if after is not None:
        visible = visible & (distance <= _reach("after", after, exact))
    return visible


def check_positions(name: str, given: Tensor) -> Tensor:
    """Check where rows stand, and give it rank 2.

    Args:
        name: as the caller wrote it.
        given: integers or floats `[t]` or `[b|1, t]`.
    Returns:
        `[b|1, t]`. Values are checked where that needs no waiting for a GPU.
    Raises:
        ContractError: another kind or rank; NaN or infinity.

    >>> check_positions("positions", torch.tensor([0.5, 2.0])).tolist()
    [[0.5, 2.0]]
    """
    want, do = "integers or floats, [t] or [b|1, t]", "pass the position of each row"
    check_tensor(name, given, (*FLOATS, *INTEGERS), want, do)
    if given.dim() not in (1, 2):
        raise ContractError(complaint(name, want, describe(given), do))
    if on_host(given) and not bool(given.isfinite().all()):
        do = "give padding any number, and hide it by `lengths`"
        raise ContractError(complaint(name, "finite", f"{describe(given)} with NaN or inf", do))
    return given[None] if given.dim() == 1 else given  # [t] -> [1, t]


def _reach(name: str, given: float, exact: bool) -> float:
    want, do = "a number of at least 0, or None", "it is a distance; None sets no limit"
    check_number(name, given, want, do, low=0)
    # Beside integers a whole number says the same, and is not rounded to a float on the way.
    return min(math.floor(given), FARTHEST) if exact else float(given)
