"""Put together what the heads read from several memories, and say which rows read anything.

    joint    exp(lse) = sum_i amount_i exp(lse_i),   value = sum_i amount_i exp(lse_i - lse) value_i
    others   value = sum_i factor_i value_i

A memory that counts for nothing, by its amount or by a closed gate, is not read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from crossattention.argument import check_number
from crossattention.attention.merge import merge
from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.contract import Reading
from crossattention.nn.pose import HeadsRead
from crossattention.nn.reader import Reader

Factor = float | Tensor


def add(found: Sequence[HeadsRead], factors: Sequence[Factor]) -> Tensor:
    """Add what was read, [b, h, t, e], each times its factor: a number, or [h, 1, 1].

    >>> one = HeadsRead(torch.ones(1, 2, 3, 4), None, None)
    >>> add([one, one], [1.0, 0.5]).unique().item()
    1.5
    """
    total = found[0].value * factors[0]
    for each, factor in zip(found[1:], factors[1:], strict=True):
        total = total + each.value * factor
    return total


def join(found: Sequence[HeadsRead], amounts: Sequence[float]) -> Tensor:
    """Merge what was read, [b, h, t, e], into what one softmax over all rows would have read.

    >>> one = HeadsRead(torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3), None)
    >>> join([one, one], [1.0, 0.0]).unique().item()
    1.0
    """
    lses = weighed(found, amounts)
    return merge([(each.value, lse) for each, lse in zip(found, lses, strict=True)])[0]


def weighed(found: Sequence[HeadsRead], amounts: Sequence[float]) -> list[Tensor]:
    """Give the log of what each memory's rows weigh together, k of [b, h, t].

    >>> one = HeadsRead(torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 1), None)
    >>> weighed([one, one], [1.0, 0.0])[1].item()
    -inf
    """
    lses = []
    for each, amount in zip(found, amounts, strict=True):
        lse = Reading(each.value, each.lse).lse_or_raise()
        added = math.log(amount) if amount else -torch.inf
        lses.append(lse + added if added else lse)
    return lses


def shares(lses: Sequence[Tensor]) -> Tensor:
    """Divide one attention among memories, k of [b, h, t] -> [b, h, t, k]; 0 where all are empty.

    >>> shares([torch.zeros(1, 1, 1), torch.full((1, 1, 1), -torch.inf)]).tolist()
    [[[[1.0, 0.0]]]]
    """
    lse = torch.stack(list(lses), -1)
    empty = (lse == -torch.inf).all(-1, keepdim=True)
    return torch.softmax(lse.masked_fill(empty, 0), -1).masked_fill(empty, 0)


def who_read(found: Sequence[HeadsRead], factors: Sequence[Factor]) -> Tensor | None:
    """Say which rows read any memory that counts, bool [b|1, h|1, t|1, 1]; None: all.

    >>> one = HeadsRead(torch.ones(1, 2, 3, 4), None, None)
    >>> who_read([one], [0.0]).item()
    False
    """
    whole = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=found[0].value.device)
    for each, factor in zip(found, factors, strict=True):
        if isinstance(factor, Tensor):  # a closed gate lets nothing through
            opened = (factor != 0)[None]  # [h, 1, 1] -> [1, h, 1, 1]
            whole = whole | (opened if each.reads is None else each.reads & opened)
        elif factor:
            if each.reads is None:
                return None
            whole = whole | each.reads
    return whole


def check_amounts(amounts: Sequence[float], count: int) -> list[float]:
    """Check how much each of `count` memories counts.

    >>> check_amounts([1, 0.5], 2)
    [1.0, 0.5]
    """
    want, do = "numbers of at least 0", "how much each memory counts; 0 leaves it out"
    given = one_each("amounts", amounts, count)
    return [check_number("amounts", each, want, do, low=0) for each in given]


def one_each(name: str, given: Sequence[Any] | None, count: int) -> Sequence[Any]:
    """Check that there is one for each of `count` memories; None stands for as many Nones.

    >>> one_each("visible", None, 2)
    [None, None]
    """
    if given is None:
        return [None] * count
    if not isinstance(given, Sequence) or len(given) != count:
        do = "give one for each memory, in the order of memory_widths"
        raise ContractError(complaint(name, f"a list of {count}", describe(given), do))
    return given


def reader_of(readers: nn.ModuleList, index: int) -> Reader:
    """Give the reader of one memory.

    >>> reader_of(nn.ModuleList([nn.Identity()]), 0)
    Traceback (most recent call last):
    crossattention.errors.ContractError: `readers` must be made of Readers, got a Identity; \
replace its projections or norms instead.
    """
    reader = readers[index]
    if not isinstance(reader, Reader):
        do = "replace its projections or norms instead"
        raise ContractError(complaint("readers", "made of Readers", describe(reader), do))
    return reader
