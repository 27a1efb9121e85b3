"""Adopt Hugging Face encoder-decoders: the beams of a source share one memory, projected once.

Two methods that `generate` calls are replaced on the instance, as is the `forward` of the decoder's
linear layers, and the decoder's config names an attention function of ours; classes, parameters and
saved files stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from crossattention.adapters.contract import Adoption, Bill, Decode, ModelExplanation
from crossattention.adapters.hugging_face.closed import give_back, take_over
from crossattention.adapters.hugging_face.families import FAMILIES
from crossattention.adapters.hugging_face.few_rows import give_linears_back, take_linears
from crossattention.adapters.hugging_face.hooks import Expand, Prepare, Split, implementations
from crossattention.adapters.hugging_face.interface import PREFIX, register
from crossattention.adapters.hugging_face.modules import (
    EXPAND,
    PREPARE,
    SPLIT,
    check_unhooked,
    family_of,
    find,
)
from crossattention.adapters.hugging_face.remember import raw_refusals, sizes_of
from crossattention.nn.form import Life, check_form, choose_form, form_costs


@dataclass(frozen=True)
class HuggingFace:
    """Know the families of the table, alone or in a wrapper of PEFT's or torch's."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The families."""
        return tuple(f"{family.name}" for family in FAMILIES.values())

    def knows(self, model: nn.Module) -> bool:
        """Whether a model comes from transformers, is of a family, and generates."""
        inner = unwrapped(model)
        ours = any(kind.__module__.startswith("transformers.") for kind in type(inner).__mro__)
        return ours and hasattr(inner, "generate") and family_of(inner) is not None

    def adopt(self, model: nn.Module, form: str) -> Adoption:
        """Check everything, then change the model; see `Adopter`."""
        inner = unwrapped(model)
        found = find(inner)
        check_unhooked(inner)
        if form == "raw":
            check_form(form, raw_refusals(found.modules(inner), found, None))
        ours = [register(name) for name in implementations(inner, found)]  # before any change
        for module, name in zip(found.modules(inner), ours, strict=False):
            config: Any = module.config
            config._attn_implementation_internal = name
        vars(inner)[EXPAND] = Expand(inner, form)._expand
        vars(inner)[PREPARE] = Prepare(inner, form)._prepare
        if hasattr(inner, SPLIT):
            vars(inner)[SPLIT] = Split(inner, form)._split
        take_linears(inner, found)
        take_over(inner, found)
        return Record()

    def explain(self, model: nn.Module, decode: Decode) -> ModelExplanation:
        """Bill cross-attention: projections, reads and cache."""
        inner: Any = unwrapped(model)
        found = find(inner)
        modules = found.modules(inner)
        sizes, layers = sizes_of(modules[0], found), len(modules)
        rows = _longest(inner.config) if decode.rows is None else decode.rows
        costs = form_costs(Life(decode.batch, rows, decode.queries, decode.tokens), sizes)
        projecting = form_costs(Life(decode.batch, rows, 0), sizes)["projected"]
        row = decode.batch * rows * inner.dtype.itemsize
        kept = layers * row * sizes.memory_heads * (sizes.key_width + sizes.value_width)
        bytes_kept = {"projected": kept, "raw": row * sizes.memory_widths[0]}
        projected, raw = (
            Bill(name, layers * cost.multiply_adds, layers * cost.total, bytes_kept[name])
            for name, cost in costs.items()
        )
        again = layers * (decode.beams - 1)  # stock projects for every beam
        stock = Bill(
            "stock", projected.multiply_adds + again * projecting.multiply_adds,
            projected.work + again * projecting.total, kept * decode.beams,
        )  # fmt: skip
        chosen = choose_form("auto", costs, raw_refusals(modules, found, None))
        return ModelExplanation(type(inner).__name__, (stock, projected, raw), chosen)


class Record:
    """That a model was adopted; all that was done shows on its modules."""

    def undo(self, model: nn.Module) -> None:
        """Give everything back, whatever the model has become since."""
        inner = unwrapped(model)
        give_linears_back(inner)
        for module in inner.modules():
            give_back(module)
            config: Any = getattr(module, "config", None)
            name = getattr(config, "_attn_implementation_internal", None)
            if isinstance(name, str) and name.startswith(PREFIX):
                config._attn_implementation_internal = name.removeprefix(PREFIX)
        for hook in (EXPAND, PREPARE, SPLIT):
            vars(inner).pop(hook, None)


def unwrapped(model: nn.Module) -> nn.Module:
    """Look inside a PEFT model, a compiled one, and one that torch runs on several devices."""
    inside = getattr(model, "get_base_model", None)
    if callable(inside) and type(model).__module__.startswith("peft."):
        inner: nn.Module = inside()
        return inner
    if type(model).__module__.startswith("torch."):
        for name in ("_orig_mod", "module"):
            wrapped = getattr(model, name, None)
            if isinstance(wrapped, nn.Module):
                return unwrapped(wrapped)
    return model


def _longest(config: Any) -> int:
    """Find the longest source: by name, as families have no one name for it."""
    for holder in (config, getattr(config, "encoder", None)):
        for name in ("max_source_positions", "max_position_embeddings", "n_positions"):
            found = getattr(holder, name, None)
            if isinstance(found, int) and found > 0:
                return found
    return 512
