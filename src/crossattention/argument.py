"""What every public door asks of an argument: the right kind of thing, before it is computed with.

A list, a sparse or nested tensor, a flag where a count is meant: each is refused by name, with what
was given, so that no caller meets an error from the depths of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from crossattention.errors import ContractError, complaint, describe

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LARGEST = sys.float_info.max
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_tensor(
    name: str,
    given: object,
    dtypes: Collection[torch.dtype],
    want: str,
    do: str,
    rank: int | None = None,
) -> Tensor:
    """Check that an argument is a dense tensor of one of some dtypes, and of a rank.

    >>> check_tensor("rows", [1.0], FLOATS, "a float tensor", "make one")
    Traceback (most recent call last):
    crossattention.errors.ContractError: `rows` must be a float tensor, got a list of 1: [1.0]; \
make one.
    """
    if (
        not isinstance(given, Tensor)
        or given.is_nested
        or given.layout != torch.strided
        or given.dtype not in dtypes
        or (rank is not None and given.dim() != rank)
    ):
        raise ContractError(complaint(name, want, describe(given), do))
    return given


def check_integers(name: str, given: Tensor | Sequence[int], want: str, do: str) -> Tensor:
    """Check a list of integers, and give it as an int64 tensor of rank 1.

    >>> check_integers("lengths", [3, 0], "integers [m]", "count").tolist()
    [3, 0]
    """
    made = given if isinstance(given, Tensor) else listed(given)
    if (
        made is None
        or made.is_nested
        or made.layout != torch.strided
        or made.device.type == "meta"  # it has no values
        or made.dtype not in INTEGERS
        or made.dim() != 1
    ):
        raise ContractError(complaint(name, want, describe(given), do))
    return made.long()


def check_size(name: str, given: object, least: int = 1, do: str = "count it") -> int:
    """Check an integer that is not a flag, `least` or more.

    >>> check_size("heads", True)
    Traceback (most recent call last):
    crossattention.errors.ContractError: `heads` must be an integer of at least 1, got True; \
count it.
    """
    if isinstance(given, bool) or not isinstance(given, int | torch.SymInt) or given < least:
        raise ContractError(complaint(name, f"an integer of at least {least}", describe(given), do))
    return given  # type: ignore[return-value]  # torch.SymInt stands for an int in a graph


def check_number(
    name: str,
    given: object,
    want: str,
    do: str,
    *,
    low: float = -LARGEST,
    high: float = LARGEST,
    strictly: bool = False,
) -> float:
    """Check a finite number from `low` to `high`; `strictly` excludes `low`.

    >>> check_number("scale", 2, "a number", "pass one")
    2.0
    """
    if (
        isinstance(given, bool)
        or not isinstance(given, int | float)
        or not low <= given <= high  # NaN is in no range
        or (strictly and given == low)
    ):
        raise ContractError(complaint(name, want, describe(given), do))
    return float(given)


def check_flag(name: str, given: object, do: str) -> bool:
    """Check True or False.

    >>> check_flag("bias", True, "choose")
    True
    """
    if not isinstance(given, bool):
        raise ContractError(complaint(name, "True or False", describe(given), do))
    return given


def on_host(tensor: Tensor) -> bool:
    """Whether values can be looked at without waiting for a GPU or breaking a compiled graph.

    >>> on_host(torch.zeros(1))
    True
    """
    if torch.compiler.is_compiling() or tensor.device.type != "cpu":
        return False
    return not torch._C._functorch.is_batchedtensor(tensor)  # vmap: one tensor stands for many


def check_range(name: str, given: Tensor, end: int, want: str, do: str) -> None:
    """Check that integers lie from 0 to below `end`, where that needs no waiting for a GPU.

    >>> check_range("owner", torch.tensor([0, 2]), 3, "below 3", "count from 0")
    """
    if not on_host(given) or not given.numel():
        return
    few = given if given.numel() < 64 else torch.stack(torch.aminmax(given))
    bounds = few.flatten().tolist()  # a short list is searched before torch has begun to
    low, high = min(bounds), max(bounds)
    if low < 0 or high >= end:
        raise ContractError(complaint(name, want, f"values from {low} to {high}", do))


def listed(given: object) -> Tensor | None:
    """Make a tensor of what may be a list of numbers; None where it is none, or holds flags.

    >>> listed([3, 0]).dtype, listed([True])
    (torch.int64, None)
    """
    if isinstance(given, Sequence):
        if not len(given):
            return torch.zeros(0, dtype=torch.int64)
        if any(isinstance(each, bool) for each in given):
            return None
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None
