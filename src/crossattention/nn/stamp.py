"""A layer's stamp: the identity, storage and version of its parameters.

A memory carries the stamp of each layer that wrote into it, so a layer that has changed since
cannot be answered with old keys. Torch's fused optimisers change parameters without raising their
version, so the first `remember` registers a hook that raises it after every optimiser step. Writes
through `.data` raise nothing and cannot be seen.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook

from crossattention.content import Stamp

_numbers = count()


def next_number() -> int:
    """Give a layer the number under which memories file what it wrote.

    >>> next_number() != next_number()
    True
    """
    return next(_numbers)


def stamp_of(*modules: nn.Module) -> Stamp:
    """Read the stamp of the modules that write into a memory; empty inside a compiled graph.

    >>> layer = nn.Linear(2, 2)
    >>> before = stamp_of(layer)
    >>> with torch.no_grad():
    ...     _ = layer.weight.add_(1)
    >>> stamp_of(layer) == before
    False
    """
    if torch.compiler.is_compiling():
        return ()
    _watch_optimizers()
    return tuple(
        (id(parameter), parameter.data_ptr(), 0 if parameter.is_inference() else parameter._version)
        for module in modules
        for parameter in module.parameters()
    )


@cache
def _watch_optimizers() -> None:
    register_optimizer_step_post_hook(_raise_versions)


def _raise_versions(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
    for group in optimizer.param_groups:
        if group.get("fused"):
            increment_version([p for p in group["params"] if p.grad is not None])
