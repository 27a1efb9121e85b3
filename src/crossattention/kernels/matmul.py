"""Two matrix products with the scores held in memory between them.

Best where few query rows read: decoding, beams, small batches. Scores are at least float32, as
rounding them to half precision would cost more than the weights' own rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from crossattention.kernels.contract import Cost, Problem, Reading, plainly
from crossattention.kernels.count import products, touches, traffic
from crossattention.kernels.fold import Folded, fold


@dataclass(frozen=True)
class Matmul:
    """Compute with two matrix products and a softmax.

    >>> Matmul().name
    'matmul'
    """

    name: str = "matmul"

    def refuses(self, problem: Problem) -> list[str]:
        """Refuse nothing."""
        return []

    def cost(self, problem: Problem) -> Cost:
        """Count the products, and the scores written and read by each pass over them."""
        b, m, h, g, t, s, _, _ = problem.sizes
        scores, copies = b * h * t * s, 0
        if problem.key.element_size() < 4:  # keys and values are widened before they are used
            copies = 8 * (problem.key.numel() + problem.value.numel())
        written = 4 * (3 * scores + touches(problem))  # float32, once more than they are touched
        return Cost(products(problem), traffic(problem) + written + copies, m * g, scores)

    def run(self, problem: Problem) -> Reading:
        """Compute."""
        folded = fold(problem)
        with plainly(problem.query.device):
            weights, scores = _weigh(folded)
            kept = F.dropout(weights, problem.dropout) if problem.dropout else weights
            value = folded.unfold(kept @ problem.value.to(kept.dtype))
            lse = folded.unfold(_lse(folded, scores)[..., None]) if problem.wants_lse else None
            total = folded.unfold(kept.sum(-1, keepdim=True)) if problem.dropout else None
        return Reading(
            value.to(problem.query.dtype),
            None if lse is None else lse[..., 0],
            None if total is None else total[..., 0],
        )


def weights(problem: Problem) -> Tensor:
    """Compute the weights alone, before dropout: [b, h, t, s], rows sum to 1 or are 0 where empty.

    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.zeros(1, 1, 1, 2)
    >>> weights(Problem(x, x, x, None, Mask(), Score(1.0))).tolist()
    [[[[1.0]]]]
    """
    folded = fold(problem)
    with plainly(problem.query.device):
        return folded.unfold(_weigh(folded)[0])


def _weigh(folded: Folded) -> tuple[Tensor, Tensor]:
    scores = _scores(folded)
    weighed = torch.softmax(scores, -1)
    if folded.reads is not None:
        weighed = weighed.masked_fill(~folded.reads, 0)
    return weighed, scores


def _scores(folded: Folded) -> Tensor:
    problem, score = folded.problem, folded.problem.score
    dtype = torch.promote_types(problem.query.dtype, problem.key.dtype)
    dtype = torch.promote_types(dtype, torch.float32)
    # Scaling the query first costs t·d instead of t·s.
    query = folded.query.to(dtype) * score.scale
    scores = query @ problem.key.to(dtype).transpose(-1, -2)  # [m, g, n·r·t, s]
    if folded.offset is not None and (score.softcap is not None or problem.wants_lse):
        scores = scores + folded.offset.to(dtype) * score.scale
    if score.softcap is not None:
        scores = score.softcap * torch.tanh(scores / score.softcap)
    if folded.bias is not None:
        scores = scores + folded.bias.to(dtype)
    if folded.visible is not None:
        scores = scores.masked_fill(~folded.visible, -torch.inf)
    if folded.reads is not None:
        # An empty row is scored as if it could read, then erased: no inf - inf either way.
        scores = scores.masked_fill(~folded.reads, 0)
    return scores


def _lse(folded: Folded, scores: Tensor) -> Tensor:
    if scores.shape[-1] == 0:
        return scores.new_full(scores.shape[:-1], -torch.inf)
    lse = torch.logsumexp(scores, -1)
    return lse if folded.reads is None else lse.masked_fill(~folded.reads[..., 0], -torch.inf)
