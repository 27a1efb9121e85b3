"""Adopt a model somebody else wrote: it reads its memories by this library, and says the same.

`adopt` finds the adopter that knows the model, which changes it in place; `release` undoes that;
`adopted` does both around a block. What was done is kept on the model, so that it is copied,
pickled and released with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

from crossattention.adapters.contract import Adopter, Adoption, Decode, ModelExplanation
from crossattention.adapters.registry import ADOPTERS
from crossattention.errors import ContractError, complaint, describe
from crossattention.nn.form import FORMS

Model = TypeVar("Model", bound=nn.Module)
RECORD = "_crossattention_adoption"  # where the record lies in the model's __dict__


def adopt(model: Model, form: str = "auto") -> Model:
    """Let a model read its memories by this library; it is changed in place.

    Args:
        model: a model of a kind that is known (see the documents), or one that wraps it.
        form: "projected" keeps each layer's keys and values, "raw" the memory's rows alone, one
            copy for all layers; "auto" takes what is cheaper for the reads to come.
    Returns:
        The same model.
    Raises:
        ContractError: a kind of model that is not known, with those that are; a model that is
            adopted already; a form that is unknown, or that this model cannot take, with reasons.

    >>> from transformers import BartConfig, BartForConditionalGeneration
    >>> sizes = {"d_model": 6, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 60}
    >>> heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    >>> model = adopt(BartForConditionalGeneration(BartConfig(**sizes, **heads)))
    >>> is_adopted(model), is_adopted(release(model))
    (True, False)
    """
    if not isinstance(form, str) or form not in FORMS:
        names = ", ".join(repr(each) for each in FORMS)
        raise ContractError(complaint("form", f"one of {names}", describe(form), "choose one"))
    adopter = _adopter(model)
    if is_adopted(model):
        do = "release it first"
        raise ContractError(complaint("model", "one not adopted yet", "an adopted one", do))
    vars(model)[RECORD] = adopter.adopt(model, form)
    return model


def release(model: Model) -> Model:
    """Give a model back exactly what it had before `adopt`.

    Args:
        model: an adopted model, or a copy of one.
    Returns:
        The same model.
    Raises:
        ContractError: a model that is not adopted.

    >>> release(nn.Linear(2, 2))
    Traceback (most recent call last):
    crossattention.errors.ContractError: `model` must be adopted, got a Linear; adopt it first.
    """
    if not isinstance(model, nn.Module) or not is_adopted(model):
        raise ContractError(complaint("model", "adopted", describe(model), "adopt it first"))
    record: Adoption = vars(model)[RECORD]
    record.undo(model)
    del vars(model)[RECORD]
    return model


@contextmanager
def adopted(model: Model, form: str = "auto") -> Iterator[Model]:
    """Adopt a model for the length of a `with` block; arguments and errors are those of `adopt`.

    A model that was released inside the block is left as it is.

    >>> from transformers import T5Config, T5ForConditionalGeneration
    >>> config = T5Config(d_model=6, d_kv=3, num_heads=2, num_layers=1, d_ff=8, vocab_size=60)
    >>> model = T5ForConditionalGeneration(config)
    >>> with adopted(model):
    ...     is_adopted(model)
    True
    >>> is_adopted(model)
    False
    """
    adopt(model, form)
    try:
        yield model
    finally:
        if is_adopted(model):
            release(model)


def is_adopted(model: nn.Module) -> bool:
    """Whether a model is adopted now.

    >>> is_adopted(nn.Linear(2, 2))
    False
    """
    return RECORD in vars(model)


def explain_model(
    model: nn.Module,
    *,
    batch: int = 1,
    beams: int = 1,
    tokens: int = 64,
    rows: int | None = None,
) -> ModelExplanation:
    """Say what a decode's memories cost as the model is, and as adopted in each form.

    Args:
        model: adopted or not; it is not changed.
        batch, beams, tokens: sources, hypotheses of each, tokens that each will write.
        rows: memory rows of one source; None: the longest the model can take.
    Returns:
        Multiply-adds and bytes of each way, and the form that "auto" takes; `print` shows a table.
    Raises:
        ContractError: a kind of model that is not known, or a size below 1.

    >>> from transformers import T5Config, T5ForConditionalGeneration
    >>> config = T5Config(d_model=6, d_kv=3, num_heads=2, num_layers=1, d_ff=8, vocab_size=60)
    >>> found = explain_model(T5ForConditionalGeneration(config), beams=4, rows=50)
    >>> stock, projected, raw = found.bills
    >>> stock.bytes / projected.bytes, stock.bytes / raw.bytes
    (4.0, 8.0)
    """
    return _adopter(model).explain(model, Decode(batch, beams, tokens, rows))


def _adopter(model: nn.Module) -> Adopter:
    """Find the first adopter that knows a model."""
    if isinstance(model, nn.Module):
        for adopter in ADOPTERS:
            if adopter.knows(model):
                return adopter
    known = ", ".join(kind for adopter in ADOPTERS for kind in adopter.kinds)
    do = "pass a model of a known kind"
    raise ContractError(complaint("model", f"one of these: {known}", describe(model), do))
