"""What a search returns: the tokens of one target, how likely each was, and what each one read."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One target sentence that a search found.

    Attributes:
        tokens: without begin and end.
        score: the sum of `token_scores` divided by (their number) ** length_penalty; higher is
            better. Greedy search and sampling divide by the number itself.
        token_scores: the model's log-probability of each token, and then of the end.
        alignment: float `[len(tokens), s]` over the sentence's real source tokens: row i is what
            token i read, and sums to 1. None unless it was asked for.

    >>> Hypothesis(tokens=(5, 7), score=-0.5, token_scores=(-0.5, -0.75, -0.25)).tokens
    (5, 7)
    """

    tokens: tuple[int, ...]
    score: float
    token_scores: tuple[float, ...]
    alignment: Tensor | None = None
