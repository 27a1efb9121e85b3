"""Chains: lanes that each write one token after the other, and never look at each other.

Greedy search is one chain whose next token is the likeliest; sampling is several whose next token
is drawn.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from crossattention.seq2seq.batch import Batch
from crossattention.seq2seq.hypothesis import Hypothesis


def write_chains(batch: Batch, choose: Callable[[Tensor], Tensor]) -> list[list[Hypothesis]]:
    """Write until every lane has ended.

    Args:
        batch: before its first token.
        choose: picks from log-probabilities `[m, n, vocabulary]`, -inf where hidden, the next
            tokens, int64 `[m, n]`.
    Returns:
        For each sentence, a hypothesis for each lane, in order.
    """
    found: list[dict[int, Hypothesis]] = [{} for _ in batch.sentences]
    if not batch.sentences:
        return []
    while True:
        scores = batch.score()
        tokens = choose(scores)
        picked = scores.gather(-1, tokens[..., None])[..., 0]  # [m, n, vocabulary] -> [m, n]
        for row, lane in (tokens == batch.rules.config.end).nonzero().tolist():
            lanes = found[batch.sentences[row]]
            if lane not in lanes:
                lanes[lane] = batch.finish(row, lane, float(picked[row, lane]))
        going = [r for r, i in enumerate(batch.sentences) if len(found[i]) < batch.lanes]
        if not going:
            return [[lanes[lane] for lane in range(batch.lanes)] for lanes in found]
        kept = batch.release(going)
        batch.write(tokens[kept], picked[kept])
