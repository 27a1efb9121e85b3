"""What may come next: forced prefixes, the longest length, and tokens that are never written.

Rules hide tokens; they never change the log-probability of those that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor

from crossattention.errors import ContractError, complaint, describe
from crossattention.seq2seq.config import Config


@dataclass(frozen=True)
class Rules:
    """Say what each sentence of a batch may write.

    Attributes:
        config: names `pad` and `begin`, which are never written, and `end`.
        limits: for each sentence, the most tokens before `end`, which is forced there.
        prefixes: for each sentence, the tokens it must start with.

    >>> rules = Rules(Config(vocabulary=5), limits=(1,), prefixes=((4,),))
    >>> rules.restrict(torch.zeros(1, 1, 5), step=0).tolist()
    [[[-inf, -inf, -inf, -inf, 0.0]]]
    >>> rules.restrict(torch.zeros(1, 1, 5), step=1).tolist()
    [[[-inf, -inf, 0.0, -inf, -inf]]]
    """

    config: Config
    limits: tuple[int, ...]
    prefixes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, config: Config, lengths: Sequence[int], max_length: int | None,
        prefix: Sequence[Sequence[int]] | None,
    ) -> Rules:  # fmt: skip
        """Check a search's limits.

        Args:
            config: the model's.
            lengths: real source tokens of each sentence.
            max_length: the most tokens before `end`; None: twice the source's and ten.
            prefix: for each sentence, the tokens it must start with; None: none.
        Raises:
            ContractError: a length the model cannot reach, a prefix that does not fit.
        """
        longest = config.max_length - 1  # begin takes a position
        if max_length is None:
            limits = tuple(min(2 * length + 10, longest) for length in lengths)
        elif isinstance(max_length, bool) or not isinstance(max_length, int) or not (
            0 <= max_length <= longest
        ):  # fmt: skip
            want = f"an integer from 0 to {longest}, one less than the model's"
            do = "count the tokens between begin and end"
            raise ContractError(complaint("max_length", want, describe(max_length), do))
        else:
            limits = (max_length,) * len(lengths)
        return cls(config, limits, _prefixes(config, limits, prefix))

    def restrict(self, scores: Tensor, step: int) -> Tensor:
        """Hide what may not be written as token `step`, in place: scores [m, n, vocabulary]."""
        scores[..., [self.config.pad, self.config.begin]] = -torch.inf
        for sentence, (limit, prefix) in enumerate(zip(self.limits, self.prefixes, strict=True)):
            if step < len(prefix):
                _only(scores[sentence], prefix[step])
            elif step >= limit:
                _only(scores[sentence], self.config.end)
        return scores

    def keep(self, sentences: Sequence[int]) -> Rules:
        """Keep some sentences, named by position."""
        limits = tuple(self.limits[sentence] for sentence in sentences)
        return Rules(self.config, limits, tuple(self.prefixes[sentence] for sentence in sentences))


def _prefixes(
    config: Config, limits: tuple[int, ...], prefix: Sequence[Sequence[int]] | None
) -> tuple[tuple[int, ...], ...]:
    if prefix is None:
        return ((),) * len(limits)
    try:
        kept = tuple(tuple(index(token) for token in each) for each in prefix)
    except TypeError as error:
        want, do = "a list of token numbers for each sentence", "pass integers"
        raise ContractError(complaint("prefix", want, describe(prefix), do)) from error
    if len(kept) != len(limits):
        want = f"one list of tokens for each of {len(limits)} sentences"
        do = "give an empty list to a sentence without one"
        raise ContractError(complaint("prefix", want, f"{len(kept)} lists", do))
    ordinary = set(range(config.vocabulary)) - {config.pad, config.begin, config.end}
    for tokens, limit in zip(kept, limits, strict=True):
        bad = [token for token in tokens if token not in ordinary]
        if bad:
            want = f"made of ordinary tokens below {config.vocabulary}"
            do = "leave out pad, begin and end"
            raise ContractError(complaint("prefix", want, f"token {bad[0]}", do))
        if len(tokens) > limit:
            want = f"at most {limit} tokens long, the most that may be written"
            do = "raise max_length, or shorten it"
            raise ContractError(complaint("prefix", want, f"{len(tokens)} tokens", do))
    return kept


def _only(scores: Tensor, token: int) -> None:
    """Hide all but one token of scores [n, vocabulary], in place."""
    kept = scores[:, token].clone()
    scores.fill_(-torch.inf)
    scores[:, token] = kept
