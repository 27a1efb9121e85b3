"""Beam search: keep the n likeliest beginnings of each sentence, and grow all of them at once.

    keep the n best of  total_j + log p(y | beginning_j)  over all lanes j and tokens y ≠ end

A beginning that ends counts if it is among the n best of all candidates, so that one beam is
greedy search. Score: sum of log-probabilities / length^α; Wu et al. 2016 use (5 + length) / 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from crossattention.seq2seq.batch import Batch
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.seq2seq.options import BeamOptions
from crossattention.seq2seq.top import largest


def write_beams(batch: Batch, options: BeamOptions) -> list[list[Hypothesis]]:
    """Grow beams until every sentence has enough.

    Args:
        batch: before its first token, with `beams` lanes.
        options: the beam.
    Returns:
        For each sentence, at most `nbest` hypotheses, best first.
    """
    pools = [Pool(options, limit) for limit in batch.rules.limits]
    totals = batch.trail.scores.new_full((len(pools), batch.lanes), -torch.inf)
    totals[:, 0] = 0  # lanes are equal before the first token, and one stands for all
    if not batch.sentences:
        return []
    while True:
        found = [pools[sentence] for sentence in batch.sentences]
        best = Candidates.of(batch.score(), totals)
        ends = best.tokens == batch.rules.config.end
        _collect(batch, best, ends[:, : batch.lanes], found)
        live = best.pick(ends.byte().argsort(stable=True)[:, : batch.lanes])
        for pool, total in zip(found, live.totals[:, 0].tolist(), strict=True):
            pool.close(total)
        going = [row for row, pool in enumerate(found) if not pool.closed]
        if not going:
            return [pool.best[: options.nbest] for pool in pools]
        kept = batch.release(going)
        totals = live.totals[kept]
        batch.write(live.tokens[kept], live.scores[kept], live.parents[kept])


@dataclass(frozen=True)
class Candidates:
    """Beginnings one token longer, [m, k] each, likeliest first.

    Attributes:
        totals: sums of log-probabilities.
        parents: int64, the lane that is continued.
        tokens: int64, with what. scores: its log-probability.

    >>> scores = torch.tensor([[[-1.0, -2.0], [-9.0, -0.5]]])
    >>> Candidates.of(scores, torch.tensor([[0.0, -1.0]])).tokens.tolist()
    [[0, 1, 1, 0]]
    """

    totals: Tensor
    parents: Tensor
    tokens: Tensor
    scores: Tensor

    @classmethod
    def of(cls, scores: Tensor, totals: Tensor) -> Candidates:
        """Find the 2n best: at least n of them go on, as a lane has one end.

        Args:
            scores: log-probabilities `[m, n, vocabulary]`. totals: sums so far, `[m, n]`.
        """
        n, vocabulary = scores.shape[1:]
        picked, tokens = largest(scores, 2 * n)  # of each lane: the best of all are among them
        k = tokens.shape[-1]
        sums = (picked + totals[..., None]).flatten(1)  # [m, n, k] -> [m, n·k]
        best, index = sums.topk(min(2 * n, n * vocabulary))
        chosen = (each.flatten(1).gather(1, index) for each in (tokens, picked))
        return cls(best, index // k, *chosen)

    def pick(self, order: Tensor) -> Candidates:
        """Keep some of each sentence, named by position [m, k']."""
        kept = (self.totals, self.parents, self.tokens, self.scores)
        return Candidates(*(each.gather(1, order) for each in kept))


@dataclass
class Pool:
    """Collect a sentence's finished hypotheses, until there are enough.

    >>> pool = Pool(BeamOptions(beams=1), limit=5)
    >>> pool.add(Hypothesis((), -0.5, (-0.5,)))
    >>> pool.close(live_total=-0.1)
    >>> pool.closed
    True
    """

    options: BeamOptions
    limit: int
    best: list[Hypothesis] = field(default_factory=list)
    closed: bool = False

    def add(self, hypothesis: Hypothesis) -> None:
        """Add one, best first."""
        self.best.append(hypothesis)
        self.best.sort(key=lambda each: -each.score)

    def close(self, live_total: float) -> None:
        """Close if nothing more is wanted, given the likeliest live beginning's total."""
        if live_total == -torch.inf:  # every lane has ended
            self.closed = True
        elif self.options.early_stopping:
            self.closed = self.closed or len(self.best) >= self.options.beams
        elif len(self.best) >= self.options.nbest:
            # Totals only fall from here, and the longest length divides them most.
            reachable = live_total / (self.limit + 1) ** self.options.length_penalty
            worst = self.best[self.options.nbest - 1].score
            self.closed = self.closed or reachable <= worst


def _collect(batch: Batch, best: Candidates, ends: Tensor, pools: list[Pool]) -> None:
    """Write down the candidates that end here; `ends` is bool [m, n]."""
    ends = ends & (best.totals[:, : ends.shape[1]] > -torch.inf)
    for row, at in ends.nonzero().tolist():
        if not pools[row].closed:
            lane, score = int(best.parents[row, at]), float(best.scores[row, at])
            pools[row].add(batch.finish(row, lane, score, pools[row].options.length_penalty))
