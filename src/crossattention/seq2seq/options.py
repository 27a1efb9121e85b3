"""How to search: what a beam keeps, and how a sample is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from crossattention.argument import check_flag, check_number, check_size
from crossattention.errors import ContractError, complaint


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
        check_size("beams", self.beams, 1, "set it")
        check_size("nbest", self.nbest, 1, "set it")
        check_flag("early_stopping", self.early_stopping, "choose when a sentence is done")
        if self.nbest > self.beams:
            want = f"at most beams, {self.beams}"
            raise ContractError(complaint("nbest", want, str(self.nbest), "keep more beams"))
        given, do = self.length_penalty, "a penalty cannot reward"
        check_number("length_penalty", given, "a number of at least 0", do, low=0)


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
        check_size("samples", self.samples, 1, "set it")
        if self.top_k is not None:
            check_size("top_k", self.top_k, 1, "set it, or None for all")
        want, do = "a number above 0", "use greedy search for the limit"
        check_number("temperature", self.temperature, want, do, low=0, strictly=True)
        want = "a number above 0 and at most 1"
        check_number("top_p", self.top_p, want, do, low=0, high=1, strictly=True)
