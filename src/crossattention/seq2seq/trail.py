"""The way each lane came: its tokens, their scores, and where each was fed.

A lane is one target sequence that is being written; a sentence has as many as it has beams or
samples. Moving a lane moves three small integers and floats a token; what tokens read stays where
it was written, and is looked up only when a lane ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.seq2seq.hypothesis import Hypothesis


@dataclass(frozen=True)
class Trail:
    """Hold the past of n lanes for each of m sentences, [m, n, t] each.

    Attributes:
        tokens: int64, without `begin`.
        scores: log-probabilities of the tokens.
        fed: int64, the row of the batch in which a token was fed, at the step it was fed.

    >>> trail = Trail.empty(2, 1, torch.zeros(())).grown(
    ...     torch.tensor([[5], [6]]), torch.zeros(2, 1)
    ... )
    >>> trail.keep(torch.tensor([1])).tokens.tolist()
    [[[6]]]
    """

    tokens: Tensor
    scores: Tensor
    fed: Tensor

    @classmethod
    def empty(cls, sentences: int, lanes: int, like: Tensor) -> Trail:
        """Stand before the first token; scores have the dtype and device of `like`."""
        none = torch.zeros(sentences, lanes, 0, dtype=torch.int64, device=like.device)
        return cls(none, none.to(like.dtype), none)

    def grown(self, tokens: Tensor, scores: Tensor) -> Trail:
        """Add the tokens [m, n] that are fed next, and their scores."""
        rows = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
        pairs = ((self.tokens, tokens), (self.scores, scores), (self.fed, rows))
        return Trail(*(torch.cat([old, new[..., None]], -1) for old, new in pairs))

    def moved(self, parents: Tensor) -> Trail:
        """Let lane j of each sentence continue lane `parents[:, j]`; parents is int64 [m, n]."""
        index = parents[..., None].expand(*parents.shape, self.tokens.shape[-1])  # -> [m, n, t]
        return Trail(*(kept.gather(1, index) for kept in (self.tokens, self.scores, self.fed)))

    def keep(self, sentences: Tensor) -> Trail:
        """Keep some sentences, named by position [m']."""
        return Trail(self.tokens[sentences], self.scores[sentences], self.fed[sentences])

    def hypothesis(
        self, row: int, lane: int, end_score: float, length_penalty: float
    ) -> Hypothesis:
        """Write down a lane that ends here.

        Args:
            row, lane: positions in this trail.
            end_score: the end's log-probability.
            length_penalty: exponent of the number of scores.
        """
        scores = (*self.scores[row, lane].tolist(), end_score)
        score = sum(scores) / len(scores) ** length_penalty
        return Hypothesis(tuple(self.tokens[row, lane].tolist()), score, scores)
