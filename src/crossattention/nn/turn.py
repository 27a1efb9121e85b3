"""Turn the heads of either stream by their positions, or say that one stream has been forgotten.

    q'_t · k'_s = f(position_t - position_s)

holds only if both are turned: rotating one side alone gives scores that mean nothing.
"""

from __future__ import annotations

from torch import Tensor

from crossattention.errors import ContractError, complaint, describe
from crossattention.nn.rotary import Rotary


def turned(rotary: Rotary | None, heads: Tensor, positions: Tensor | None, whose: str) -> Tensor:
    """Turn heads [b, h, t, d] by positions [b|1, t] or [t], where a layer has a rotary at all.

    >>> import torch
    >>> heads = torch.ones(1, 2, 3, 4)
    >>> turned(None, heads, None, "the query") is heads
    True
    """
    check_positions(rotary, positions, whose)
    if rotary is None or positions is None:
        return heads
    output: Tensor = rotary(heads, positions)
    return output


def check_positions(rotary: Rotary | None, positions: Tensor | None, whose: str) -> None:
    """Check that positions are given where a layer turns by them, and only there.

    >>> check_positions(Rotary(4), None, "the query")
    Traceback (most recent call last):
    crossattention.errors.ContractError: `positions` must be those of the query, as the layer has \
a rotary, got None; one-sided rotation means nothing: pass them to remember and to the read.
    """
    if rotary is None:
        if positions is not None:
            want, do = "None, as the layer has no rotary", "assign layer.rotary = Rotary(width)"
            raise ContractError(complaint("positions", want, describe(positions), do))
        return
    if not isinstance(rotary, Rotary):
        do = "assign a Rotary, or None"
        raise ContractError(complaint("rotary", "a Rotary", describe(rotary), do))
    if positions is None:
        want = f"those of {whose}, as the layer has a rotary"
        do = "one-sided rotation means nothing: pass them to remember and to the read"
        raise ContractError(complaint("positions", want, "None", do))
