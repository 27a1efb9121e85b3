"""Generate with a model as it is and as adopted, and compare everything that comes back."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation import GenerationMixin

from crossattention.adapters import adopted

TIE = 1e-5  # two best scores nearer than this may change places


def generate(model: PreTrainedModel, given: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Generate with scores; samples are drawn alike every time."""
    settings = {"max_new_tokens": 6, "do_sample": False, **settings}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        call = model.generate  # Whisper's own adds rules; a wrapper's is no GenerationMixin's
        if isinstance(model, GenerationMixin):
            call = functools.partial(GenerationMixin.generate, model)
        return call(
            **copy.copy(given), return_dict_in_generate=True, output_scores=True, **settings
        )


def differences(stock: Any, ours: Any, tolerance: float = 1e-4) -> list[str]:
    """List, in words, where two results of `generate` differ."""
    found = []
    if not torch.equal(stock.sequences, ours.sequences) and not tied(stock.scores):
        found.append(f"tokens {stock.sequences.tolist()} and {ours.sequences.tolist()}")
    best = getattr(stock, "sequences_scores", None)
    if best is not None and not torch.allclose(best, ours.sequences_scores, atol=tolerance):
        found.append(f"scores {best.tolist()} and {ours.sequences_scores.tolist()}")
    for step, (left, right) in enumerate(zip(stock.scores, ours.scores, strict=True)):
        apart = _apart(left, right)
        if apart > tolerance:
            found.append(f"step {step} by {apart:.1e}")
    return found


def tied(scores: tuple[Tensor, ...]) -> bool:
    """Whether at some step the two best scores were too near to call."""
    tops = [score.topk(2, -1).values for score in scores]
    return any(bool((top[..., 0] - top[..., 1] < TIE).any()) for top in tops)


def _apart(left: Tensor, right: Tensor) -> float:
    """Give the largest difference of two steps' scores, `[b, v]`.

    A beam that ended is scored 1e9 less, so that nothing of it remains to compare. Of two scores
    at the edge of what is kept for sampling, either may be the one that is not: -inf stands there
    for the smallest that is.
    """
    kept = [
        torch.where(score > -1e6, score, torch.inf).amin(-1, keepdim=True)
        for score in (left, right)
    ]
    edged = [
        torch.where((score == -torch.inf) & (other > -1e6), edge, score)
        for score, other, edge in zip((left, right), (right, left), kept, strict=True)
    ]
    seen = (edged[0] > -1e6) & (edged[0] < torch.inf)
    return float((edged[0] - edged[1]).abs()[seen].max()) if bool(seen.any()) else 0.0


def compare(
    model: PreTrainedModel, given: dict[str, Any], settings: dict[str, Any], form: str = "auto"
) -> list[str]:
    """Compare a model as it is with itself as adopted, and once more when released."""
    stock = generate(model, given, settings)
    with adopted(model, form):
        ours = generate(model, given, settings)
    again = generate(model, given, settings)
    found = differences(stock, ours)
    if not torch.equal(stock.sequences, again.sequences):
        found.append("released, it writes something else")
    if not all(torch.equal(a, b) for a, b in zip(stock.scores, again.scores, strict=True)):
        found.append("released, it scores otherwise")
    return found
