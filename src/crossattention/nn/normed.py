"""Norm a memory's rows once, whoever reads them and however often.

    W (γ · x̂ + β) + b  =  (W diag γ) x̂ + (W β + b),   x̂ = (x - mean) / deviation

Where each of several layers has a norm of its own over the same rows, only scale γ and shift β
differ, and a projection behind the norm can hold both (`fold_norm`). So x̂ is computed and kept
once for all layers, and layers may even read it raw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory


def normed(
    rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None, norm: nn.Module, width: int
) -> Memory:
    """Make a memory of normed rows; one that is a memory already is returned as it is.

    Args:
        rows: `[m, s, c]`; what lies beyond the lengths is cleared before it is normed, as a norm's
            derivative at NaN is NaN.
        lengths: integers `[m]`, the real rows of each memory; None: all are real.
        norm: maps rows to rows.
        width: c.
    Raises:
        ContractError: rows of another width, and all that `Memory.of` refuses.

    >>> import torch
    >>> memory = normed(torch.randn(1, 5, 4), [3], nn.LayerNorm(4, elementwise_affine=False), 4)
    >>> memory.rows.norm(dim=-1).round().tolist()
    [[2.0, 2.0, 2.0, 0.0, 0.0]]
    """
    memory = Memory.of(rows, lengths)
    if isinstance(rows, Memory):
        return memory
    cleared = memory.holding.rows().rows
    if cleared.shape[-1] != width:
        want, do = f"[m, s, {width}]", "pass the rows' width as memory_width"
        raise ContractError(complaint("rows", want, describe(rows), do))
    return Memory.of(norm(cleared), memory.lengths)


def remembered(memory: Memory, given: Tensor | Memory) -> Memory:
    """Give up rows that every layer has projected, where nobody else can want them.

    Args:
        memory: after every layer has written into it.
        given: what it was made of.

    >>> import torch
    >>> rows = torch.ones(1, 2, 3)
    >>> remembered(Memory.of(rows), rows).rows is None
    True
    """
    given_up = memory.holding.projected and not isinstance(given, Memory)
    return memory.without_rows() if given_up else memory


def memory_of(
    rows: Tensor | Memory,
    lengths: Tensor | Sequence[int] | None,
    remember: Callable[[Tensor, Tensor | Sequence[int] | None], Memory],
) -> Memory:
    """Take a memory as it is, which has lengths of its own, and remember rows.

    >>> import torch
    >>> memory = Memory.of(torch.ones(1, 2, 3))
    >>> memory_of(memory, None, Memory.of) is memory
    True
    """
    return Memory.of(rows, lengths) if isinstance(rows, Memory) else remember(rows, lengths)
