"""An attention function of transformers' own interface, and masks under the same name.

A model whose config names it hands every attention here. What reads a shared memory is read by
this library; everything else goes to the function the model had. Without a mask function of the
same name, transformers would build no mask at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from crossattention.adapters.hugging_face.remembered import shared
from crossattention.errors import ContractError, complaint

Attention = Callable[..., tuple[Tensor, Tensor | None]]
PREFIX = "crossattention_"
SERVES = ("sdpa", "eager")


class Name(str):
    """A name that is registered; a process that has not done so yet does it as it unpickles it."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Callable[[str], str], tuple[str]]:
        return register, (str(self),)


def register(before: str) -> str:
    """Register our function over an implementation of transformers, once, and give its name.

    Args:
        before: "sdpa" or "eager", what the model has.
    Raises:
        ContractError: another implementation.

    >>> register("sdpa")
    'crossattention_sdpa'
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    before = before.removeprefix(PREFIX)  # another model of the same config may be adopted
    if before not in SERVES:
        do = 'load the model with attn_implementation="sdpa"'
        want = f"one of {', '.join(SERVES)}"
        raise ContractError(complaint("attn_implementation", want, repr(before), do))
    name = Name(PREFIX + before)
    if name not in AttentionInterface():
        AttentionInterface.register(name, _Attend(before)._attend)
        AttentionMaskInterface.register(name, AttentionMaskInterface()[before])
    return name


@dataclass(frozen=True)
class _Attend:
    """Read a shared memory, or hand on to what the model had."""

    before: str

    def _attend(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        memory = shared(key)
        if memory is None:
            return _stock(module, self.before)(module, query, key, value, attention_mask, **kwargs)
        return memory.read(module, query, (key, value), attention_mask, kwargs.get("scaling"))


def _stock(module: nn.Module, before: str) -> Attention:
    """Find the function a module used: eager ones are not registered, but beside the module."""
    from transformers import AttentionInterface

    if before != "eager":
        function: Attention = AttentionInterface()[before]
        return function
    for kind in type(module).__mro__:
        found = getattr(sys.modules[kind.__module__], "eager_attention_forward", None)
        if found is not None and "forward" in vars(kind):
            eager: Attention = found
            return eager
    raise ContractError(
        complaint("attn_implementation", "sdpa", "eager, which this module lacks", "load it anew")
    )
