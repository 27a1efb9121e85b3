"""Do two searches with the same weights write the same tokens, but for ties?

Greedy: where two sentences part, our model must give both next tokens the same log-probability.
Beams: our model must give both sentences the same mean log-probability of a token. A sentence that
it likes better than the other's counts as different all the same: with the same weights nearly none
may differ, and if many do, it is the weights that are not the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from benchmarks.side_by_side import Unequal
from benchmarks.translating import Batch, Ours, Work
from crossattention.seq2seq import EncoderDecoder

TIE = 2e-3  # in log-probability
MOST = {1: 0.0, 4: 0.02}  # by beams, the share that may differ: ties met on the way prune beams


def compare_tokens(
    ours: Ours, theirs: Work, batches: Sequence[Batch], beams: int
) -> dict[str, object]:
    """Translate all batches by both; count equal sentences, ties, and better and worse ones.

    Raises:
        Unequal: more sentences than `MOST` differ without a tie, for the better or the worse.
    """
    counts = {"equal": 0, "tied": 0, "better": 0, "worse": 0}
    for batch in batches:
        mine, other = (each.translate(batch, beams).written for each in (ours, theirs))
        for source, one, two in zip(batch, mine, other, strict=True):
            counts[_judge(ours.model, source, one, two, beams)] += 1
    total = sum(counts.values())
    share = (counts["equal"] + counts["tied"]) / total
    if 1 - share > MOST[beams]:
        raise Unequal(f"with {beams} beams, our sentences beside the other's: {counts}")
    return {
        "case": f"same tokens, beams {beams}",
        "sentences": total,
        "equal_or_tied": share,
    } | counts


def _judge(
    model: EncoderDecoder, source: Sequence[int], mine: list[int], other: list[int], beams: int
) -> str:
    if mine == other:
        return "equal"
    scores = [_scores(model, source, each) for each in (mine, other)]
    if beams == 1:
        ended = ([*each, model.config.end] for each in (mine, other))
        at = next(at for at, (a, b) in enumerate(zip(*ended, strict=False)) if a != b)
        gap = (scores[0][at] - scores[1][at]).item()
    else:
        gap = (scores[0].mean() - scores[1].mean()).item()
    if abs(gap) <= TIE:
        return "tied"
    return "better" if gap > 0 else "worse"


@torch.inference_mode()
def _scores(model: EncoderDecoder, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """Give the log-probability of each token of a known target, and of its end."""
    given = torch.tensor([[model.config.begin, *target]])
    wanted = torch.tensor([*target, model.config.end])
    logits = model(torch.tensor([list(source)]), torch.tensor([len(source)]), given)
    scores: Tensor = logits[0].log_softmax(-1)
    return scores.gather(1, wanted[:, None])[:, 0]  # [t, vocabulary] -> [t]
