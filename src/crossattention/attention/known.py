"""A reading like one before it: what was found out then is not asked again.

    traits = shapes, strides, dtypes and places of what is given; how an owner groups

Whether the door lets tensors in, which kernel is cheapest for them, and what the native kernel must
be told of them hang on these alone; what lengths say is looked at each time. Whatever drops, caps,
orders, records or transforms goes the long way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from crossattention.argument import listed
from crossattention.attention.choose import choose, keep
from crossattention.attention.door import check_scale, enter
from crossattention.attention.hidden import NOTHING, run
from crossattention.kernels.contract import Kernel, Problem, Score
from crossattention.kernels.native.call import Given, Layout
from crossattention.kernels.native.kernel import is_transformed
from crossattention.kernels.native.registered import PLAIN, are_followed
from crossattention.mask import Mask, check_lengths
from crossattention.owner import Owner

_KNOWN: dict[Hashable, Layout | Kernel] = {}
_Shared = Owner | Tensor | Sequence[int] | None


def read_known(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    owner: _Shared = None,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    scale: float | None = None,
) -> Tensor | None:
    """Read with the kernel that "auto" takes; None where that hangs on more than traits.

    Arguments are those of `attend`.

    Raises:
        ContractError: what the door does not let in.

    >>> x = torch.ones(1, 1, 1, 2)
    >>> with torch.no_grad():
    ...     read_known(x, x, x).tolist(), read_known(x[0], x[0], x[0])
    ([[[[1.0, 1.0]]]], None)
    """
    if torch.is_grad_enabled() or are_followed() or is_transformed():
        return None
    counts = lengths if lengths is None or isinstance(lengths, Tensor) else listed(lengths)
    if (counts is None and lengths is not None) or not (owner is None or isinstance(owner, Owner)):
        return None
    index = None if owner is None else owner.index
    traits = traits_of(query, key, value, visible, bias, counts, index)
    if traits is None:
        return None
    if owner is not None:
        traits = traits, owner.memories, owner.per_memory, owner.slots is None
    known = _KNOWN.get(traits) or _learn(
        traits, query, key, value, owner, visible, bias, counts, scale
    )
    if known is None:
        return None
    factor = check_scale(scale, query.shape[3])
    if isinstance(known, Layout):
        return known.read(Given(query, key, value, counts, visible, bias, None, index), factor)
    mask = _mask(visible, bias, counts, key)
    return run(known, Problem(query, key, value, owner, mask, Score(factor))).value


def _learn(
    traits: Hashable,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    owner: Owner | None,
    visible: Tensor | None,
    bias: Tensor | None,
    lengths: Tensor | None,
    scale: float | None,
) -> Layout | Kernel | None:
    """Go the long way once; None where others of these traits may not be read as they are."""
    problem, headless = enter(
        query, key, value, visible=visible, bias=bias, lengths=lengths, owner=owner,
        causal=None, softcap=None, scale=scale, dropout=0.0,
    )  # fmt: skip
    mask = problem.mask
    if headless or not (problem.owner is owner and mask.visible is visible and mask.bias is bias):
        return None
    known: Layout | Kernel = choose(problem)
    layout = getattr(known, "layout", None)
    if layout is not None and mask.lengths is lengths:
        known = layout(problem) or known
    return keep(_KNOWN, traits, known)


def _mask(visible: Tensor | None, bias: Tensor | None, lengths: Tensor | None, key: Tensor) -> Mask:
    if visible is bias is lengths is None:
        return NOTHING
    if lengths is not None:
        lengths = check_lengths(lengths, len(key), key.shape[2]).to(key.device)
    return Mask(None, visible, bias, None, lengths)


def traits_of(*given: Tensor | None) -> Hashable | None:
    """List what decides how tensors are read; None where more than that decides.

    >>> traits_of(torch.ones(2, 3))[:2]
    (torch.Size([2, 3]), (3, 1))
    """
    traits: list[Hashable] = []
    for each in given:
        if each is None:
            traits.append(None)
            continue
        if type(each) not in PLAIN or each.layout is not torch.strided:
            return None
        if each.is_nested or each.is_neg():
            return None
        traits += each.shape, each.stride(), each.dtype, each.device
    return tuple(traits)
