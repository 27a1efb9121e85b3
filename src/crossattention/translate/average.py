"""A moving average of a model's weights, which translates better than the last weights alone.

    mean <- keep * mean + (1 - keep) * weight,   keep = min(decay, (1 + step) / (10 + step))

Polyak & Juditsky 1992; the smaller decay of early steps forgets the random start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def follow(average: Sequence[Tensor], model: nn.Module, step: int, decay: float) -> None:
    """Move the average towards the model's weights, in place.

    Args:
        average: one tensor for each parameter.
        model: what is averaged.
        step: from 0.
        decay: of late steps, 0 to 1.

    >>> model = nn.Linear(1, 1)
    >>> average = [torch.zeros_like(each) for each in model.parameters()]
    >>> follow(average, model, step=0, decay=0.0)
    >>> all(torch.equal(a, p) for a, p in zip(average, model.parameters()))
    True
    """
    keep = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average), [p.detach() for p in model.parameters()], 1 - keep)


@contextmanager
def lent(model: nn.Module, average: Sequence[Tensor]) -> Iterator[None]:
    """Lend the average to the model inside, in evaluation mode; give back its own after."""
    own = [p.detach().clone() for p in model.parameters()]
    _fill(model, average)
    model.eval()
    try:
        yield
    finally:
        _fill(model, own)
        model.train()


@torch.no_grad()
def _fill(model: nn.Module, values: Sequence[Tensor]) -> None:
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.copy_(value)
