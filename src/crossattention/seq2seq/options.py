"""How to search: what a beam keeps, and how a sample is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crossattention.errors import ContractError, complaint, describe


@dataclass(frozen=True)
class BeamOptions:
    """Describe a beam search.

    Attributes:
        beams: unfinished hypotheses that are kept of each sentence.
        nbest: hypotheses that are returned, at most `beams`.
        length_penalty: α in score = sum of log-probabilities / length ** α, where the length
            counts the end; at least 0. 0 favours short targets, 1 compares means.
        early_stopping: whether a sentence is done when it has `beams` finished hypotheses; else it
            goes on until no unfinished one can still enter the n best.

    >>> BeamOptions(beams=2).length_penalty
    1.0
    """

    beams: int = 4
    nbest: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = True

    def __post_init__(self) -> None:
        _whole("beams", self.beams)
        _whole("nbest", self.nbest)
        if self.nbest > self.beams:
            want = f"at most beams, {self.beams}"
            raise ContractError(complaint("nbest", want, str(self.nbest), "keep more beams"))
        _between("length_penalty", self.length_penalty, 0, math.inf, "a penalty cannot reward")


@dataclass(frozen=True)
class SampleOptions:
    """Describe a distribution to draw the next token from: the model's, narrowed in this order.

    Attributes:
        samples: hypotheses that are drawn for each sentence, independently.
        temperature: divides log-probabilities; below 1 sharpens.
        top_k: how many of the likeliest tokens may be drawn; None: all.
        top_p: only the fewest likeliest tokens whose probabilities sum to at least this may be
            drawn (Holtzman et al. 2020); 1: all.

    >>> SampleOptions(top_k=5).temperature
    1.0
    """

    samples: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        _whole("samples", self.samples)
        if self.top_k is not None:
            _whole("top_k", self.top_k)
        do = "use greedy search for the limit"
        _between("temperature", self.temperature, 0, math.inf, do, open_below=True)
        _between("top_p", self.top_p, 0, 1, do, open_below=True)


def _whole(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ContractError(complaint(name, "a positive integer", describe(value), "set it"))


def _between(
    name: str, value: float, low: float, high: float, do: str, *, open_below: bool = False
) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high or value == math.inf or (open_below and value == low):
        above = f"above {low}" if open_below else f"at least {low}"
        want = f"a number {above}" + ("" if high == math.inf else f" and at most {high}")
        raise ContractError(complaint(name, want, describe(value), do))
