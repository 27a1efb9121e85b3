"""What was computed from one tensor is kept while that very tensor lives, unwritten.

    kept(text, modules) = kept before,  if text is the same object at the same version, the modules
                          carry the same stamp, and torch computes in the same way

Nothing is kept where gradients, graphs or transforms record what is computed, in training, where
hooks watch the modules, and of tensors made in inference mode, which count no writes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn

from crossattention.nn.kept import PLAIN, is_recorded
from crossattention.nn.raw import is_watched
from crossattention.nn.stamp import stamp_of
from crossattention.source import versions_of

Pair = tuple[Tensor, Tensor]


class KeptText:
    """Keep one pair of tensors that were computed from a text; copies and pickles begin empty.

    What is kept goes when the text does.

    >>> kept, text, layer = KeptText(), torch.ones(1, 2, 3), nn.Linear(3, 4).eval()
    >>> with torch.no_grad():
    ...     first = kept.of(text, [layer], lambda: (layer(text), text))
    ...     again = kept.of(text, [layer], lambda: (layer(text), text))
    >>> first[0] is again[0]
    True
    """

    def __init__(self) -> None:
        self._entry: tuple[weakref.ref[Tensor], Hashable, Pair] | None = None

    def __reduce__(self) -> tuple[type[KeptText], tuple[()]]:
        return KeptText, ()

    def of(self, text: Tensor, modules: list[nn.Module], make: Callable[[], Pair]) -> Pair:
        """Give what `make` computes from a text and these modules, once if it can be kept."""
        state, entry = _state(text, modules), self._entry
        if state is None:
            return make()
        if entry is not None and entry[0]() is text and entry[1] == state:
            return entry[2]
        made = make()
        self._entry = (weakref.ref(text, self._forget), state, made)
        return made

    def _forget(self, dead: Any) -> None:
        if self._entry is not None and self._entry[0] is dead:
            self._entry = None


def _state(text: Tensor, modules: list[nn.Module]) -> Hashable | None:
    """All that the pair hangs on, or None where it may not be kept."""
    if torch.compiler.is_compiling() or is_recorded(text.device):
        return None
    versions = versions_of(text)
    inside = [each for module in modules for each in module.modules()]
    if not versions or any(is_watched(each) or _may_draw(each) for each in inside):
        return None
    kind, autocast, stream = text.device.type, None, None
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        autocast = torch.get_autocast_dtype(kind)
    if kind == "cuda":  # what one stream computes another may read too early
        stream = torch.cuda.current_stream(text.device).cuda_stream
    return versions, text.data_ptr(), stamp_of(*modules), autocast, stream


def _may_draw(module: nn.Module) -> bool:
    """Whether a call may give something else next time, as dropout does in training."""
    return module.training and type(module) not in PLAIN
