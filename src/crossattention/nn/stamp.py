"""A layer's stamp: identity, storage and version of its parameters and buffers; hooks and switches.

A memory carries the stamp of each layer that wrote into it, so a layer that has changed since
cannot be answered with old keys: an adapter that is switched off changes a flag alone. Torch's
fused optimisers change parameters without raising their version, so the first `remember` registers
a hook that raises it after every optimiser step. Writes through `.data`, and to parameters made in
inference mode, raise nothing and cannot be seen.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any
from weakref import ref

import torch
from torch import nn
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_post_hook

from crossattention.content import Stamp
from crossattention.nn.learned import LearnedQueries

_numbers = count()
# By the address of torch's object for a storage, which lives as long as the storage does.
_storages: dict[int, tuple[int, ref[torch.UntypedStorage]]] = {}


def next_number() -> int:
    """Draw a number under which a layer files what it writes into memories.

    >>> next_number() != next_number()
    True
    """
    return next(_numbers)


class Numbered(nn.Module):
    """A layer with a number of its own, under which memories file what it wrote.

    A copy is another layer: deep copies and unpickled layers get numbers of their own.

    >>> import copy
    >>> layer = Numbered()
    >>> copy.deepcopy(layer).number != layer.number
    True
    """

    def __init__(self) -> None:
        super().__init__()
        self.number = next_number()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.number = next_number()


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
    stamps: list[tuple[int, ...]] = []
    for module in modules:
        for each in module.modules() if module._modules else (module,):
            stamps.append(_settings(each))
            for kept in (*each._parameters.values(), *each._buffers.values()):
                if kept is not None:
                    stamps.append(_state(kept))
    return tuple(stamps)


def _state(kept: torch.Tensor) -> tuple[int, ...]:
    """Where the numbers are. An address alone may come back, once what lay there is freed."""
    if torch._C._functorch.is_functorch_wrapped_tensor(kept):
        return (id(kept),)  # inside torch.func: a wrapper, new in each call, without storage
    storage = kept.untyped_storage()
    known = _storages.get(id(storage)) or _numbered(storage)
    try:
        version = kept._version
    except RuntimeError:  # numbers made in inference mode have none
        version = 0
    return id(kept), known[0], kept.data_ptr(), version


def _numbered(storage: torch.UntypedStorage) -> tuple[int, ref[torch.UntypedStorage]]:
    address = id(storage)
    known = next(_numbers), ref(storage, lambda _: _storages.pop(address, None))
    _storages[address] = known
    return known


def _settings(module: nn.Module) -> tuple[int, ...]:
    """What else a module's result hangs on: its hooks, a replaced forward, its own switches."""
    hooked = module._forward_pre_hooks or module._forward_hooks
    if type(module) in _WITHOUT_SWITCHES and not hooked and "forward" not in vars(module):
        return (id(module),)
    hooks = (*module._forward_pre_hooks, *module._forward_hooks)  # each hook has a number
    held = vars(module)
    switches = frozenset((name, _plain(held[name])) for name in held.keys() - _OF_TORCH)
    return id(module), hash(hooks), hash(switches)


_WITHOUT_SWITCHES = (nn.Linear, nn.Identity, LearnedQueries)
_OF_TORCH = frozenset(vars(nn.Module()))  # `training` among them: a mode is no switch


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    if isinstance(value, dict):
        return tuple((str(name), _plain(each)) for name, each in value.items())
    return value if isinstance(value, str | int | float | None) else id(value)


@cache
def _watch_optimizers() -> None:
    register_optimizer_step_post_hook(_raise_versions)


def _raise_versions(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
    for group in optimizer.param_groups:
        if group.get("fused"):
            increment_version([p for p in group["params"] if p.grad is not None])
