"""Adopt Hugging Face encoder-decoders: the beams of a source share one memory, projected once.

Two methods that `generate` calls are replaced on the instance, as is the `forward` of the decoder's
linear layers, and the decoder's config names an attention function of ours; classes, parameters and
saved files stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from crossattention.adapters.contract import Adoption, Bill, Decode, ModelExplanation
from crossattention.adapters.hugging_face.closed import Taken, give_back, take_over
from crossattention.adapters.hugging_face.families import FAMILIES
from crossattention.adapters.hugging_face.few_rows import give_linears_back, take_linears
from crossattention.adapters.hugging_face.hooks import Expand, Prepare, implementations
from crossattention.adapters.hugging_face.interface import PREFIX, register
from crossattention.adapters.hugging_face.modules import EXPAND, PREPARE, Found, family_of, find
from crossattention.adapters.hugging_face.remember import raw_refusals, sizes_of
from crossattention.nn.form import Life, check_form, choose_form, form_costs


@dataclass(frozen=True)
class HuggingFace:
    """Know the families of the table, alone or inside a PEFT model."""

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
        if form == "raw":
            check_form(form, raw_refusals(found.modules(inner), found, None))
        now = [name.removeprefix(PREFIX) for name in implementations(inner, found)]
        names = dict(zip(found.paths, now, strict=False))
        for name in set(now):  # all of them, before anything has changed
            register(name)
        for path, name in names.items():
            _name(inner, path, register(name))
        vars(inner)[EXPAND] = Expand(inner, found, form)._expand
        vars(inner)[PREPARE] = Prepare(inner, found, form)._prepare
        take_linears(inner, found)
        return Record(found, names, take_over(inner, found))

    def explain(self, model: nn.Module, decode: Decode) -> ModelExplanation:
        """Bill cross-attention: projections, reads and cache."""
        inner: Any = unwrapped(model)
        found = find(inner)
        modules = found.modules(inner)
        sizes, layers = sizes_of(modules[0], found), len(modules)
        rows = _longest(inner.config) if decode.rows is None else decode.rows
        costs = form_costs(Life(decode.batch, rows, decode.queries, decode.tokens), sizes)
        projecting = form_costs(Life(decode.batch, rows, 0), sizes)["projected"]
        row = decode.batch * rows * next(modules[0].parameters()).element_size()
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


@dataclass(frozen=True)
class Record:
    """What was there before: the attention implementation of each layer's config."""

    found: Found
    names: dict[str, str]
    taken: Taken = field(default_factory=dict)

    def undo(self, model: nn.Module) -> None:
        """Give everything back; an implementation that was set since is kept."""
        inner = unwrapped(model)
        give_back(inner, self.taken)
        give_linears_back(inner)
        for path, name in self.names.items():
            if implementation(inner, path).startswith(PREFIX):
                _name(inner, path, name)
        for hook in (EXPAND, PREPARE):
            vars(inner).pop(hook, None)

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        for name in set(self.names.values()):  # another process has not registered them yet
            register(name)


def unwrapped(model: nn.Module) -> nn.Module:
    """Look inside a PEFT model."""
    inside = getattr(model, "get_base_model", None)
    if callable(inside) and type(model).__module__.startswith("peft."):
        inner: nn.Module = inside()
        return inner
    return model


def implementation(model: nn.Module, path: str) -> str:
    """Name the attention implementation of one layer."""
    config: Any = model.get_submodule(path).config
    return str(config._attn_implementation)


def _name(model: nn.Module, path: str, name: str) -> None:
    config: Any = model.get_submodule(path).config
    config._attn_implementation_internal = name


def _longest(config: Any) -> int:
    """Find the longest source: by name, as families have no one name for it."""
    for holder in (config, getattr(config, "encoder", None)):
        for name in ("max_source_positions", "max_position_embeddings", "n_positions"):
            found = getattr(holder, name, None)
            if isinstance(found, int) and found > 0:
                return found
    return 512
