"""Judge what was found: right numbers where they are given, exact zeros where nothing is read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cases.book import Case


def right(what: str, found: Tensor, expected: Tensor, tolerance: float) -> None:
    """Check numbers within tolerance * max(1, |number|); NaN in `expected` is not compared."""
    assert list(found.shape) == list(expected.shape), f"{what}: shape {list(found.shape)}"
    found = found.detach().double()
    bound = tolerance * expected.abs().clamp(min=1)
    good = (found == expected) | ((found - expected).abs() <= bound) | expected.isnan()
    assert bool(good.all()), (
        f"{what}: {found[~good].tolist()[:5]} instead of {expected[~good].tolist()[:5]} "
        f"at {(~good).nonzero().tolist()[:5]}"
    )


def zero(what: str, found: Tensor, where: Tensor) -> None:
    """Check that numbers are exactly 0 in some places."""
    chosen = found.detach()[where.expand_as(found)]
    assert not bool((chosen != 0).any()), f"{what}: {chosen[chosen != 0].tolist()[:5]} where 0"


def visible_cells(given: dict[str, Any], shape: tuple[int, int, int, int]) -> Tensor:
    """Say which of the scores [b, h, t, s] count, by the meaning of every mask."""
    b, _, t, s = shape
    see = torch.ones(shape, dtype=torch.bool)
    if "visible" in given:
        see = see & given["visible"]
    if "hidden" in given:
        see = see & ~given["hidden"]
    if "bias" in given:
        see = see & (given["bias"].detach() > -torch.inf)
    if "lengths" in given:
        own = given.get("owner", list(range(b)))
        lengths = torch.as_tensor(given["lengths"])[own]
        see = see & (torch.arange(s) < lengths[:, None, None, None])
    offset = offset_of(given, t, s)
    if offset is not None:
        see = see & (torch.arange(s) <= torch.arange(t)[:, None] + offset)
    return see


def offset_of(given: dict[str, Any], t: int, s: int) -> int | None:
    """Row i reads s <= i + offset."""
    corner = {"top-left": 0, "bottom-right": s - t}.get(given.get("causal", ""))
    return given.get("query_offset", corner)


def judge(case: Case, found: dict[str, Any], dtype: torch.dtype) -> None:
    """Check every number that a reading gave against those of the case."""
    tolerance, see = case.tolerance(dtype), found["see"]
    for what in ("output", "weights", "lse"):
        if what in found and tolerance is not None:
            right(what, found[what], case.expected(what), tolerance)
    if tolerance is None and "output" in found:
        off = (found["output"].double() - case.expected("output")).abs()
        assert bool((off <= case.expected("bound_bfloat16")).all()), f"output: off by {off}"
    if "weights" in found:
        zero("weights of hidden cells", found["weights"], ~see)
    if "output" in found and found["output"].dim() == 4:
        zero("output of empty rows", found["output"], ~see.any(-1)[..., None])
    for what, gradient in found.get("grads", {}).items():
        assert tolerance is not None
        right(f"gradient of {what}", gradient, case.gradient(what, gradient.shape), tolerance)
        if what in ("key", "value", "memory", "value_memory"):
            unread = ~read_rows(see, found["owner"], gradient.shape[0])
            rows = unread[:, :, None] if gradient.dim() == 3 else unread[:, None, :, None]
            zero(f"gradient of {what} that nobody reads", gradient, rows)


def read_rows(see: Tensor, owner: list[int] | None, memories: int) -> Tensor:
    """Say which memory rows [m, s] somebody reads."""
    found = torch.zeros(memories, see.shape[-1], dtype=torch.bool)
    for sequence, cells in enumerate(see.flatten(1, 2).any(1)):
        found[sequence if owner is None else owner[sequence]] |= cells
    return found
