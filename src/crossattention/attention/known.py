"""The kernel of a reading that hides nothing, known from one of the same traits before it.

    traits = shapes, dtypes, devices and layouts of query, key and value; how an owner groups them

Whether the door lets tensors in, and which kernel is cheapest for them, hangs on these alone, so
both are asked once. Whatever masks, drops, records or transforms goes the long way.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import Tensor

from crossattention.attention.choose import choose, is_recorded
from crossattention.attention.door import enter
from crossattention.kernels.contract import Kernel
from crossattention.owner import Owner

MOST = 4096  # traits that are kept at a time
_KERNELS: dict[Hashable, Kernel] = {}


def known_kernel(query: Tensor, key: Tensor, value: Tensor, owner: Owner | None) -> Kernel | None:
    """Name the kernel that "auto" takes; None where it hangs on more than traits.

    Raises:
        ContractError: what the door does not let in.

    >>> x = torch.ones(1, 1, 1, 2)
    >>> with torch.no_grad():
    ...     known_kernel(x, x, x, None).name != "", known_kernel(x[0], x[0], x[0], None)
    (True, None)
    """
    if torch.is_grad_enabled() or is_recorded():
        return None
    for given in (query, key, value):
        if not isinstance(given, Tensor) or given.is_nested:
            return None
    shared = None if owner is None else _traits(owner)
    traits = (
        shared, query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype,
        query.device, key.device, value.device, query.layout, key.layout, value.layout,
    )  # fmt: skip
    found = _KERNELS.get(traits)
    return _learned(traits, query, key, value, owner) if found is None else found


def _traits(owner: Owner) -> Hashable:
    index = owner.index
    return index.shape, index.device, owner.memories, owner.per_memory, owner.slots is None


def _learned(
    traits: Hashable, query: Tensor, key: Tensor, value: Tensor, owner: Owner | None
) -> Kernel | None:
    problem, headless = enter(
        query, key, value, visible=None, bias=None, lengths=None, owner=owner,
        causal=None, softcap=None, scale=None, dropout=0.0,
    )  # fmt: skip
    if headless or not key.shape[2]:  # where there are no rows, most kernels must be told
        return None
    if len(_KERNELS) >= MOST:
        _KERNELS.clear()
    found = _KERNELS[traits] = choose(problem)
    return found
