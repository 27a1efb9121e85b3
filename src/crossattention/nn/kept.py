"""What was computed from weights alone is kept while nothing that it hangs on changes.

    kept(state) = kept(state before)  if both are equal, computed again otherwise

The state is the modules' stamp and the ways in which torch computes. Nothing is kept where the
same modules may give something else next time (hooks, modules that are not plain, a random one),
nor where torch records what is computed: gradients, compiled and captured graphs, transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.modules import module as of_torch

from crossattention.nn.learned import LearnedQueries
from crossattention.nn.raw import is_watched
from crossattention.nn.stamp import stamp_of

T = TypeVar("T")
_HELD = (nn.Parameter, Tensor)
PLAIN = (nn.Linear, nn.Identity, nn.LayerNorm, nn.RMSNorm, LearnedQueries)


class Kept(Generic[T]):
    """Keep one value; copies and pickles of it begin empty.

    >>> kept, layer = Kept[Tensor](), nn.Linear(2, 2)
    >>> with torch.no_grad():
    ...     first = kept.of(state_of([layer]), lambda: layer.weight * 2)
    ...     again = kept.of(state_of([layer]), lambda: layer.weight * 2)
    >>> again is first
    True
    """

    def __init__(self) -> None:
        self._entry: tuple[Hashable, T] | None = None

    def __reduce__(self) -> tuple[type[Kept[T]], tuple[()]]:
        return Kept, ()

    def of(self, state: Hashable | None, make: Callable[[], T]) -> T:
        """Give what `make` computes in this state, computed once if there is one."""
        if torch.compiler.is_compiling():
            return make()
        entry = self._entry
        if state is not None and entry is not None and entry[0] == state:
            return entry[1]
        made = make()
        self._entry = None if state is None else (state, made)
        return made


def state_of(modules: list[nn.Module]) -> Hashable | None:
    """All that a value computed from modules hangs on, or None where none may be kept.

    >>> state_of([nn.Linear(2, 2)]) is None  # gradients are on
    True
    """
    if torch.compiler.is_compiling():
        return None
    device = None
    for module in modules:
        if not is_plain(module):
            return None
        for each in module._parameters.values():
            device = device if device is not None or each is None else each.device
    if device is None or is_recorded(device) or of_torch._has_any_global_hook():
        return None
    kind, stream, autocast = device.type, None, None
    if kind == "cuda":  # what one stream computes another may read too early
        stream = torch.cuda.current_stream(device).cuda_stream
    if kind == "cpu" or torch.amp.is_autocast_available(kind):
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return stamp_of(*modules), autocast, torch.is_inference_mode_enabled(), stream


def is_recorded(device: torch.device) -> bool:
    """Whether torch records what is computed: a kept number would be a constant in its record.

    >>> is_recorded(torch.device("cpu"))
    True
    """
    return (
        torch.is_grad_enabled()
        or forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or (device.type == "cuda" and torch.cuda.is_current_stream_capturing())
    )


def is_plain(module: nn.Module) -> bool:
    """Whether a module's call depends on its parameters and nothing else that may change unseen.

    >>> is_plain(nn.Linear(2, 2)), is_plain(nn.LazyLinear(2))
    (True, False)
    """
    if type(module) not in PLAIN or is_watched(module):
        return False
    # One that is not a registered parameter has no place in the stamp.
    if "weight" in vars(module) or "bias" in vars(module):
        return False
    for each in module._parameters.values():  # a loop, as it is asked in every call
        if each is not None and (type(each) not in _HELD or each.layout is not torch.strided):
            return False  # what lies otherwise has no storage to be stamped
    return True
