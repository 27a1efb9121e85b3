"""What is hidden from which query, and what follows for kernels that multiply hidden rows.

    readable[b, h, t, s] = rows · visible · (bias > -inf)        reads = any over s of readable

A kernel that multiplies every row needs both: rows that nobody may read are zeroed for it, as they
may hold anything, and query rows that read nothing are erased by it. To find out takes a pass over
the masks, so a kernel that never touches what is hidden is spared it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from crossattention import mask as masks
from crossattention.argument import on_host
from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Kernel, Problem, Reading
from crossattention.mask import Causal, Mask
from crossattention.owner import Owner

NOTHING = Mask()  # what most readings hide
Shape = tuple[int, int, int, int]


def combine(
    shape: Shape,
    device: torch.device,
    rows: Tensor | None,
    visible: Tensor | None,
    bias: Tensor | None,
    causal: Causal,
) -> Mask:
    """Check whatever hides from [b, h, t, s], and combine it; who reads nothing is not yet asked.

    >>> combine((1, 1, 1, 3), torch.device("cpu"), None, None, None, 0).visible.tolist()
    [[[[True, False, False]]]]
    """
    if visible is None and bias is None and causal is None:
        return NOTHING if rows is None else Mask(rows)
    visible = None if visible is None else masks.check_visible(visible, shape)
    bias = None if bias is None else masks.check_bias(bias, shape)
    for name, given in (("visible", visible), ("bias", bias)):
        if given is not None and given.device != device:
            places = f"{given.device} and {device}"
            raise ContractError(complaint(name, "on the query's device", places, "move it"))
    ordered = masks.causal_rows(causal, shape[2], shape[3], device)
    return Mask(rows, masks.both(visible, ordered), bias)


def find_readable(
    mask: Mask,
    shape: Shape,
    device: torch.device,
    owner: Owner | None,
    may_be_empty: bool = True,
) -> tuple[Mask, Tensor | None]:
    """Find who reads nothing: the mask with `reads`, and what is readable, [b|1, h|1, t|1, s|1].

    Args:
        mask, shape, device, owner: what hides, from whom.
        may_be_empty: whether `mask.rows` may leave a memory without rows.

    >>> mask = Mask(torch.tensor([[True, False, False]]))
    >>> find_readable(mask, (1, 1, 1, 3), torch.device("cpu"), None)[0].reads.tolist()
    [[[[True]]]]
    """
    rows, readable, bias, _, _ = mask
    if readable is None and bias is None and not may_be_empty:
        return mask, None  # every query row reads: nothing to look for
    if rows is not None:
        per_memory = rows[:, None, None, :]  # [m, s] -> [m, 1, 1, s]
        readable = masks.both(readable, per_memory if owner is None else per_memory[owner.index])
    if bias is not None:
        readable = masks.both(readable, bias.detach() != -torch.inf)
    if shape[3] == 0:  # no rows: nothing can be read, whatever a mask of one column says
        readable = torch.ones(1, 1, 1, 0, dtype=torch.bool, device=device)
    reads = None if readable is None else readable.any(-1, keepdim=True)
    return mask._replace(reads=reads), readable


def build_mask(
    shape: Shape,
    device: torch.device,
    rows: Tensor | None,
    owner: Owner | None,
    visible: Tensor | None,
    bias: Tensor | None,
    causal: Causal,
    may_be_empty: bool = True,
) -> tuple[Mask, Tensor | None]:
    """Combine whatever hides and find who reads nothing: what layers need, to add nothing there."""
    mask = combine(shape, device, rows, visible, bias, causal)
    return find_readable(mask, shape, device, owner, may_be_empty)


def settled(problem: Problem) -> Problem:
    """Find who reads nothing, and zero what nobody may read: a problem that any kernel can run.

    >>> from crossattention.kernels.contract import Score
    >>> x = torch.tensor([[[[torch.nan]]]])
    >>> hidden = Mask(torch.tensor([[False]]))
    >>> settled(Problem(x, x, x, None, hidden, Score(1.0))).key.item()
    0.0
    """
    query, key, value, owner, mask, _, _, _ = problem
    if mask is NOTHING and key.shape[2] and (owner is None or owner.unread is None):
        return problem
    shape = (*query.shape[:3], key.shape[2])
    if mask.lengths is not None:
        rows = torch.arange(shape[3], device=key.device) < mask.lengths[:, None]  # [m] -> [m, s]
        mask = mask._replace(rows=rows, lengths=None)
    may_be_empty = mask.rows is not None or shape[3] == 0
    mask, readable = find_readable(mask, shape, query.device, owner, may_be_empty)
    key, value = clear_unread(key, value, readable, owner)
    return problem._replace(key=key, value=value, mask=mask)


def run(kernel: Kernel, problem: Problem) -> Reading:
    """Run a kernel; what is hidden is settled first if it would multiply it.

    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.kernels.matmul import Matmul
    >>> x = torch.tensor([[[[torch.nan]]]])
    >>> hidden = Mask(torch.tensor([[False]]))
    >>> run(Matmul(), Problem(x, x, x, None, hidden, Score(1.0))).value.item()
    0.0
    """
    return kernel.run(problem if getattr(kernel, "skips_hidden", False) else settled(problem))


def clear_unread(
    key: Tensor, value: Tensor, readable: Tensor | None, owner: Owner | None
) -> tuple[Tensor, Tensor]:
    """Zero the memory rows that no query may read: they may hold anything, NaN included."""
    if readable is None:
        if owner is None or owner.unread is None:
            return key, value
        whole = owner.unread[:, None, None, None]  # [m] -> [m, 1, 1, 1]
        return key.masked_fill(whole, 0), value.masked_fill(whole, 0)
    used = readable.flatten(1, 2).any(1)  # [b|1, h|1, t|1, s|1] -> [b|1, s|1]
    if owner is not None:
        used = used.expand(owner.index.shape[0], -1).float()
        used = used.new_zeros(owner.memories, used.shape[1]).index_add(0, owner.index, used) > 0
    unread = ~used[:, None, :, None]  # [m|1, s|1] -> [m|1, 1, s|1, 1]
    if on_host(unread) and not bool(unread.any()):
        return key, value
    return key.masked_fill(unread, 0), value.masked_fill(unread, 0)
