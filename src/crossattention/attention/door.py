"""Check everything a caller gives to `attend`, once, and turn it into a `Problem`.

Sizes never broadcast by accident, and masks are never padded or cropped. What masks hide is worked
out afterwards, in `hidden`, and only for a kernel that multiplies hidden rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from crossattention import mask as masks
from crossattention.argument import FLOATS, check_number, check_tensor
from crossattention.attention.hidden import combine
from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.contract import Problem, Score
from crossattention.mask import Causal
from crossattention.owner import Owner


def enter(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None,
    bias: Tensor | None,
    lengths: Tensor | Sequence[int] | None,
    owner: Owner | Tensor | Sequence[int] | None,
    causal: Causal,
    softcap: float | None,
    scale: float | None,
    dropout: float,
) -> tuple[Problem, bool]:
    """Check the arguments of `attend`, and say whether they lacked the head axis.

    The problem is as it was given, hidden rows included: `settled` is left to who needs it.
    """
    check_streams(query, key, value)
    headless = query.dim() == 3
    if headless:
        query, key, value = query[:, None], key[:, None], value[:, None]  # -> [b, 1, t, d]
    (b, h, t, d), (m, _, s, _) = query.shape, key.shape
    owned = check_owner(owner, b, m)
    check_place(owned, key)
    mask = combine((b, h, t, s), query.device, None, visible, bias, causal)
    if lengths is not None:
        mask = mask._replace(lengths=masks.check_lengths(lengths, m, s).to(key.device))
    score = Score(check_scale(scale, d), check_softcap(softcap))
    problem = Problem(query, key, value, owned, mask, score, check_dropout(dropout))
    return problem, headless


def check_streams(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Check that query, key and value are tensors whose sizes, dtypes and devices agree."""
    if not _agree(query, key, value):
        _check_each(query, key, value)


def _agree(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether all is well with three tensors that have heads: what is asked word by word below."""
    for given in (query, key, value):
        if not isinstance(given, Tensor) or given.is_nested or given.layout is not torch.strided:
            return False
        if given.dtype not in FLOATS or given.dim() != 4 or given.device != query.device:
            return False
    (_, h, _, d), (m, g, s, width) = query.shape, key.shape
    return width == d and value.shape[:3] == (m, g, s) and g > 0 and h % g == 0


def _check_each(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, given in (("query", query), ("key", key), ("value", value)):
        kinds = "float32, float64, bfloat16 or float16"
        check_tensor(name, given, FLOATS, f"a tensor of {kinds}", "convert it, or project it first")
        if given.dim() not in (3, 4) or given.dim() != query.dim():
            want = "[b, h, t, d] over [m, g, s, d], or all without the head axis"
            do = "give query, key and value the same rank"
            raise ContractError(complaint(name, want, f"shape {list(given.shape)}", do))
        if given.device != query.device:
            places = f"{query.device} and {given.device}"
            do = "move the memory with .to(device)"
            raise ContractError(complaint(f"query` and `{name}", "on one device", places, do))
    _check_equal("query` and `key", "width", -1, query, key)
    _check_equal("key` and `value", "rows", -2, key, value)
    _check_equal("key` and `value", "memories", 0, key, value)
    if query.dim() == 4:
        _check_equal("key` and `value", "heads", 1, key, value)
        if key.shape[1] == 0 or query.shape[1] % key.shape[1]:
            counts = f"{query.shape[1]} query heads over {key.shape[1]} key heads"
            do = "query head j reads key head j // (h / g)"
            raise ContractError(complaint("heads", "a multiple of the key heads", counts, do))


def _check_equal(names: str, what: str, axis: int, left: Tensor, right: Tensor) -> None:
    if left.shape[axis] != right.shape[axis]:
        shapes = f"{list(left.shape)} and {list(right.shape)}"
        do = f"make {left.shape[axis]} and {right.shape[axis]} agree"
        raise ContractError(complaint(names, f"of equal {what}", shapes, do))


def check_owner(
    owner: Owner | Tensor | Sequence[int] | None, sequences: int, memories: int
) -> Owner | None:
    """Check that each query sequence reads one existing memory."""
    if owner is None:
        if sequences != memories:
            do = "pass `owner`, the memory of each query sequence"
            given = f"{sequences} query sequences and {memories} memories"
            raise ContractError(complaint("query` and `key", "of equal batch size", given, do))
        return None
    owned = owner if isinstance(owner, Owner) else Owner.of(owner, memories)
    if owned.memories != memories or owned.index.shape[0] != sequences:
        given = f"{owned.index.shape[0]} entries over {owned.memories} memories"
        want = f"[b] = [{sequences}] over m = {memories} memories"
        do = "name one memory for each query sequence"
        raise ContractError(complaint("owner", want, given, do))
    return owned


def check_place(owner: Owner | None, key: Tensor) -> None:
    """Check that an owner has values where the memories have some."""
    if owner is not None and owner.index.is_meta and not key.is_meta:
        want, do = "with its values, as the memories have theirs", "make it on their device"
        raise ContractError(complaint("owner", want, describe(owner.index), do))


def check_scale(scale: float | None, width: int) -> float:
    """Take d^-½ where no scale is given; 1 where there is no width to scale by."""
    if scale is None:
        return width**-0.5 if width else 1.0
    return check_number("scale", scale, "a finite number", "pass None for 1/√d")


def check_softcap(softcap: float | None) -> float | None:
    """Check c in c·tanh(score/c)."""
    if softcap is None:
        return None
    want = "a finite number above 0"
    return check_number("softcap", softcap, want, "pass None for no cap", low=0, strictly=True)


def check_dropout(dropout: float) -> float:
    """Check a probability."""
    if type(dropout) is float and 0 <= dropout < 1:
        return dropout
    do = "it is the probability that a weight is dropped"
    most = math.nextafter(1, 0)
    return check_number("dropout", dropout, "from 0 to below 1", do, low=0, high=most)
