"""Find a model's cross-attention modules, and check that they are still the ones we know.

A class that has changed under us is refused when the model is adopted, not in the middle of a
decode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from crossattention.adapters.hugging_face.families import FAMILIES, JOINED, Family
from crossattention.errors import ContractError, complaint

EXPAND = "_expand_inputs_for_generation"
PREPARE = "_prepare_cache_for_generation"
SPLIT = "_postprocess_outputs"  # Whisper's alone
_HOOKS = {
    EXPAND: {"self", "expand_size", "is_encoder_decoder", "input_ids", "model_kwargs"},
    PREPARE: {
        "self",
        "generation_config",
        "model_kwargs",
        "generation_mode",
        "batch_size",
        "max_cache_length",
    },
}


@dataclass(frozen=True)
class Found:
    """A model's family and the paths of its cross-attention modules, by layer.

    >>> from transformers import T5Config, T5ForConditionalGeneration
    >>> config = T5Config(d_model=6, d_kv=3, num_heads=2, num_layers=1, d_ff=8, vocab_size=60)
    >>> find(T5ForConditionalGeneration(config)).paths
    ('decoder.block.0.layer.1.EncDecAttention',)
    """

    family: Family
    paths: tuple[str, ...]

    def modules(self, model: nn.Module) -> list[nn.Module]:
        """Look the modules up, so that replaced ones are met as they are now."""
        return [model.get_submodule(path) for path in self.paths]


def family_of(model: nn.Module) -> Family | None:
    """Look a model's family up by its config; None where it is not in the table."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind in JOINED:
        config = getattr(getattr(model, "decoder", None), "config", None)
        kind = getattr(config, "model_type", None)
    elif not getattr(config, "is_encoder_decoder", False):
        return None
    return FAMILIES.get(kind) if isinstance(kind, str) else None


def find(model: nn.Module) -> Found:
    """Find the cross-attention modules of a model whose family is known.

    Raises:
        ContractError: a class whose parts or signatures are not those we know.
    """
    family = family_of(model)
    if family is None:
        do = "pass a model of a known family"
        raise ContractError(complaint("model", "of a known family", type(model).__name__, do))
    layers = {}
    for path, module in model.named_modules():
        if type(module).__name__ == family.attention and f".{path}".endswith(f".{family.place}"):
            _check_module(module, family)
            layers[module.layer_idx] = path
    if set(layers) != set(range(len(layers))) or not layers:
        given = f"{len(layers)} of class {family.attention} at *.{family.place}"
        raise _changed(model, f"one {family.place} for each decoder layer, numbered", given)
    for name, want in _HOOKS.items():
        _check_hook(model, name, want)
    return Found(family, tuple(str(layers[index]) for index in range(len(layers))))


def check_unhooked(model: nn.Module) -> None:
    """Check that nobody else has replaced, on the instance, what we are about to replace."""
    for name in _HOOKS:
        if name in vars(model):
            want = f"one whose {name} is its class's"
            raise _changed(model, want, "one that was given another")


def _check_module(module: nn.Module, family: Family) -> None:
    layout = family.layout
    parts = (layout.query, layout.key, layout.value, layout.output)
    lacks = [
        name for name in parts if name and not isinstance(getattr(module, name, None), nn.Module)
    ]
    if not isinstance(getattr(module, layout.width, None), int):
        lacks.append(layout.width)
    if not isinstance(getattr(module, "layer_idx", None), int):
        lacks.append("layer_idx")
    taken = _parameters(type(module).forward)
    lacks += [
        f"an argument `{name}`"
        for name in ("hidden_states", layout.memory, "cache")
        if name not in taken
    ]
    if not layout.closed and not hasattr(module, "config"):
        lacks.append("config")
    if lacks:
        want = f"the {family.attention} that is known"
        raise _changed(module, want, f"one without {', '.join(lacks)}")


def _check_hook(model: nn.Module, name: str, want: set[str]) -> None:
    hook = getattr(type(model), name, None)
    if hook is None:
        raise _changed(model, "one that can `generate`", f"one without {name}")
    taken = set(_parameters(hook))
    if taken != want:
        raise _changed(model, f"one whose {name} takes {sorted(want)}", str(sorted(taken)))


def _parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(inspect.unwrap(function)).parameters)


def _changed(model: nn.Module, want: str, given: str) -> ContractError:
    do = "this release of transformers, or this model, is not yet known"
    return ContractError(complaint(type(model).__name__, want, given, do))
