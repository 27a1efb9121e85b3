"""The kernel of a reading, known from one of the same traits before it.

    traits = shapes, dtypes, devices and layouts of what is given; how an owner groups

Whether the door lets tensors in, and which kernel is cheapest for them, hangs on these alone, so
both are asked once; what lengths say is looked at each time. Whatever drops, caps, orders, records
or transforms goes the long way.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from crossattention.attention.choose import choose, is_recorded
from crossattention.attention.door import check_scale, enter
from crossattention.attention.hidden import NOTHING
from crossattention.kernels.contract import Kernel, Problem, Score
from crossattention.mask import Mask, check_lengths
from crossattention.owner import Owner

MOST = 4096  # traits that are kept at a time
_KERNELS: dict[Hashable, Kernel] = {}
_Shared = Owner | Tensor | Sequence[int] | None


def pose_known(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    owner: _Shared = None,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    scale: float | None = None,
) -> tuple[Kernel, Problem] | None:
    """Pose a reading, with the kernel that "auto" takes; None where that hangs on more than traits.

    Arguments are those of `attend`.

    Raises:
        ContractError: what the door does not let in.

    >>> x = torch.ones(1, 1, 1, 2)
    >>> with torch.no_grad():
    ...     pose_known(x, x, x)[0].name != "", pose_known(x[0], x[0], x[0])
    (True, None)
    """
    if not (owner is None or isinstance(owner, Owner)):
        return None
    traits = _traits((query, key, value), owner, (visible, bias), lengths is None)
    if traits is None:
        return None
    kernel = _KERNELS.get(traits)
    if kernel is None:
        problem, headless = enter(
            query, key, value, visible=visible, bias=bias, lengths=lengths, owner=owner,
            causal=None, softcap=None, scale=scale, dropout=0.0,
        )  # fmt: skip
        if headless or any(mask is not None and mask.dim() != 4 for mask in (visible, bias)):
            return None
        if len(_KERNELS) >= MOST:
            _KERNELS.clear()
        kernel = _KERNELS[traits] = choose(problem)
    mask = NOTHING
    if lengths is not None:
        lengths = check_lengths(lengths, len(key), key.shape[2]).to(key.device)
    if not (visible is bias is lengths is None):
        mask = Mask(None, visible, bias, None, lengths)
    score = Score(check_scale(scale, query.shape[-1]))
    return kernel, Problem(query, key, value, owner, mask, score)


def _traits(
    streams: tuple[Tensor, Tensor, Tensor],
    owner: Owner | None,
    masks: tuple[Tensor | None, Tensor | None],
    all_real: bool,
) -> Hashable:
    """List what decides how these are read; None where more than that decides."""
    if torch.is_grad_enabled() or is_recorded():
        return None
    traits: list[Hashable] = [None if owner is None else _of_owner(owner), all_real]
    for given in (*streams, *masks):
        if given is None:
            traits.append(None)
        elif not isinstance(given, Tensor) or given.is_nested:
            return None
        else:
            traits += given.shape, given.dtype, given.device, given.layout
    return tuple(traits)


def _of_owner(owner: Owner) -> Hashable:
    index = owner.index
    return index.shape, index.device, owner.memories, owner.per_memory, owner.slots is None
