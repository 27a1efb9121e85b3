"""What `generate` calls on an adopted model: sources are not repeated for hypotheses, but shared.

`generate` first repeats its inputs for beams and return sequences, then makes a cache. Here the
first holds the encoder's output back, and the second, which knows the settings, fills a shared
cache from it, or repeats it after all where it cannot be shared.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch
from torch import Tensor, nn

from crossattention.adapters.hugging_face.closed import all_taken_over
from crossattention.adapters.hugging_face.interface import PREFIX
from crossattention.adapters.hugging_face.modules import EXPAND, PREPARE, SPLIT, Found, find
from crossattention.adapters.hugging_face.remember import Expected, remember
from crossattention.errors import ContractError, complaint

_HELD = "_crossattention_repeats"  # on an encoder's output that is yet to be repeated
Kwargs = dict[str, Any]


class Hook:
    """One method of a model, replaced on the instance; it does not keep the model alive.

    A copy of the model, or one that was pickled, has a hook of its own that serves the copy.
    """

    def __init__(self, model: nn.Module, form: str) -> None:
        self.model, self.form = weakref.ref(model), form

    def __getstate__(self) -> tuple[nn.Module | None, str]:
        return self.model(), self.form

    def __setstate__(self, state: tuple[nn.Module, str]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def _stock(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call the method of the model's class."""
        model = self._model()
        return getattr(type(model), name)(model, *args, **kwargs)

    def _model(self) -> nn.Module:
        model = self.model()
        if model is None:
            given, do = "a shallow copy of one that is gone", "release it and adopt it anew"
            raise ContractError(complaint("model", "an adopted one", given, do))
        return model


class Expand(Hook):
    """`_expand_inputs_for_generation`, which holds the sources back."""

    def _expand(
        self,
        expand_size: int = 1,
        is_encoder_decoder: bool = False,
        input_ids: Tensor | None = None,
        **model_kwargs: Any,
    ) -> tuple[Tensor, Kwargs]:
        outputs = model_kwargs.get("encoder_outputs")
        if (
            not is_encoder_decoder
            or not isinstance(getattr(outputs, "last_hidden_state", None), Tensor)
            or torch.compiler.is_compiling()  # a traced tensor bears no mark
        ):
            everything = {"input_ids": input_ids, **model_kwargs}
            return self._stock(EXPAND, expand_size, is_encoder_decoder, **everything)  # type: ignore[no-any-return]
        held = {
            name: model_kwargs.pop(name)
            for name in ("encoder_outputs", "attention_mask")
            if name in model_kwargs
        }
        rest = {"input_ids": input_ids, **model_kwargs}
        expanded, rest = self._stock(EXPAND, expand_size, False, **rest)
        held["encoder_outputs"] = copy.copy(outputs)  # the caller's own stays as it is
        setattr(held["encoder_outputs"], _HELD, expand_size)
        return expanded, {**rest, **held}


class Prepare(Hook):
    """`_prepare_cache_for_generation`, which shares the sources, or repeats what was held back."""

    def _prepare(
        self,
        generation_config: Any,
        model_kwargs: Kwargs,
        generation_mode: Any,
        batch_size: int,
        max_cache_length: int,
    ) -> None:
        from crossattention.adapters.hugging_face.cache import SharedCache, SharedLayer

        given = model_kwargs.get("cache")
        settings = (generation_mode, batch_size, max_cache_length)
        self._stock(PREPARE, generation_config, model_kwargs, *settings)
        outputs: Any = model_kwargs.get("encoder_outputs")
        repeats = getattr(outputs, _HELD, None)
        if repeats is None or isinstance(given, SharedCache):
            return
        cache, mask = model_kwargs.get("cache"), model_kwargs.get("attention_mask")
        model: Any = self._model()
        found = find(model)  # anew, as layers may have been replaced or removed
        if given is not None or not _shares(model, found, outputs.last_hidden_state, cache, mask):
            _repeat(self, model_kwargs, repeats)
            return
        maps = generation_config.output_attentions or model.config.output_attentions
        expected = Expected(
            self.form,
            repeats * max_cache_length,
            max_cache_length,
            bool(maps and _eager(model, found)),
        )
        content = remember(model, found, outputs.last_hidden_state, expected)
        own = cache.self_attention_cache  # type: ignore[union-attr]
        model_kwargs["cache"] = SharedCache(own, [SharedLayer(*pair) for pair in content])
        if mask is not None and bool(mask.all()):
            model_kwargs["attention_mask"] = None  # nothing to build at every step


class Split(Hook):
    """`_postprocess_outputs`, which takes a cache apart by hypotheses."""

    def _split(self, seek_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        from crossattention.adapters.hugging_face.cache import SharedCache
        from crossattention.adapters.hugging_face.spread import spread

        cache, model = getattr(seek_outputs, "cache", None), self._model()
        if isinstance(cache, SharedCache) and kwargs["is_shortform"]:  # others it throws away
            seek_outputs.cache = spread(cache, model, find(model))
        return self._stock(SPLIT, seek_outputs, *args, **kwargs)


def implementations(model: nn.Module, found: Found) -> list[str]:
    """Name the attention implementation of each layer, where it goes through the interface."""
    if found.family.layout.closed:
        return []
    configs: list[Any] = [module.config for module in found.modules(model)]
    return [str(config._attn_implementation) for config in configs]


def _shares(
    model: nn.Module, found: Found, rows: Tensor, cache: object, mask: Tensor | None
) -> bool:
    """Whether what is to be decoded can share its sources exactly."""
    if model.training or not hasattr(cache, "cross_attention_cache"):
        return False  # dropout would draw otherwise; or there is no cache to share
    if rows.dim() != 3 or (mask is not None and (mask.dim() != 2 or not bool(mask.any(1).all()))):
        return False  # a source of which nothing may be read differs by implementation
    names = implementations(model, found)  # another model that has them may have been released
    return all(name.startswith(PREFIX) for name in names) and all_taken_over(model, found)


def _eager(model: nn.Module, found: Found) -> bool:
    return all(name.endswith("eager") for name in implementations(model, found))


def _repeat(hook: Hook, model_kwargs: Kwargs, repeats: int) -> None:
    """Repeat what was held back, as the class does."""
    held = {
        name: model_kwargs[name]
        for name in ("encoder_outputs", "attention_mask")
        if name in model_kwargs
    }
    model_kwargs.update(hook._stock(EXPAND, repeats, True, input_ids=None, **held)[1])
