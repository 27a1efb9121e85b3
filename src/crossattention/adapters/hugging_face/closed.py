"""Modules that compute attention in place: their `forward` is taken over on the instance.

Where the cache is a shared one, the module's own projections are called around our read; every
other call goes to the `forward` that was there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from crossattention.adapters.hugging_face.families import Layout
from crossattention.adapters.hugging_face.modules import Found
from crossattention.adapters.hugging_face.remembered import shared

_PLACES = ("forward", "_old_forward")  # the second is where accelerate keeps what it wraps


class Forward:
    """The `forward` of one cross-attention module of an adopted model."""

    def __init__(
        self, module: nn.Module, before: Callable[..., Any] | None, layout: Layout
    ) -> None:
        self.module, self.before, self.layout = weakref.ref(module), before, layout

    def __getstate__(self) -> tuple[nn.Module | None, Callable[..., Any] | None, Layout]:
        return self.module(), self.before, self.layout

    def __setstate__(self, state: tuple[nn.Module, Callable[..., Any] | None, Layout]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        module: Any = self.module()
        before = self.before or type(module).forward.__get__(module)
        cache = kwargs.get("cache")
        layers = getattr(getattr(cache, "cross_attention_cache", None), "layers", None)
        layer = layers[module.layer_idx] if layers else None
        memory = None if layer is None or layer.keys is None else shared(layer.keys)
        if layer is None or memory is None or kwargs.get(self.layout.memory) is None:
            return before(hidden_states, *args, **kwargs)
        b, t, _ = hidden_states.shape
        width = getattr(module, self.layout.width)
        query = getattr(module, self.layout.query)(hidden_states)
        query = query.view(b, t, -1, width).transpose(1, 2)  # [b, t, h·d] -> [b, h, t, d]
        content, mask = (layer.keys, layer.values), kwargs.get("attention_mask")
        read, maps = memory.read(module, query * module.scaling, content, mask, 1.0)
        mapped = read.reshape(b, t, -1)
        if self.layout.output is not None:
            mapped = getattr(module, self.layout.output)(mapped)
        return (mapped, maps, cache) if self.layout.triple else (mapped, maps)


def take_over(model: nn.Module, found: Found) -> None:
    """Take over modules whose keys do not reach the interface, or do so as padded copies."""
    for module in _closed(model, found):
        held = vars(module)
        if not _taken_over(module):  # another model may have the same modules, and be adopted
            held["forward"] = Forward(module, held.get("forward"), found.family.layout)._forward


def give_back(module: nn.Module) -> None:
    """Give a module its `forward` back; one that was put above ours stays, without ours."""
    held = vars(module)
    for name in _PLACES:
        if _is_ours(held.get(name)):
            before = held.pop(name).__self__.before
            if before is not None or name != "forward":
                held[name] = before or type(module).forward.__get__(module)


def all_taken_over(model: nn.Module, found: Found) -> bool:
    """Whether every module that must be is taken over now, for this model or another."""
    return all(_taken_over(module) for module in _closed(model, found))


def _taken_over(module: nn.Module) -> bool:
    """Whether our `forward` is a module's own, or the one that accelerate's calls."""
    return any(_is_ours(vars(module).get(name)) for name in _PLACES)


def _closed(model: nn.Module, found: Found) -> list[nn.Module]:
    every = found.family.layout.closed
    modules = found.modules(model)
    return [each for each in modules if every or getattr(each, "head_dim_padding", None)]


def _is_ours(function: object) -> bool:
    return isinstance(getattr(function, "__self__", None), Forward)
