"""What training minimises: surprise at the next token, and one head's distance from word links.

    loss = CE(next token, smoothed) + weight * mean over target tokens of -sum_j links_ij log
    alignment_ij

Padding costs nothing: rows that teach nothing are dropped before the output projection. The second
term makes one head of the decoder an aligner (Garg et al. 2019, arXiv:1909.02074).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.batches import Batch
from crossattention.translate.cross_entropy import cross_entropy


class Losses(NamedTuple):
    """Cross-entropy per target token, smoothed, and of the alignment per linked row (or None)."""

    translation: Tensor
    alignment: Tensor | None


def losses(model: EncoderDecoder, batch: Batch, smoothing: float) -> Losses:
    """Compute both losses of one batch.

    Args:
        model: its config names the alignment head.
        batch: see `Batch`; without links there is no alignment loss.
        smoothing: label smoothing.

    Returns:
        Means over real tokens.
    """
    memory = model.encode(batch.source, batch.source_lengths)
    if batch.links is None:
        rows, alignment = model.decode(batch.target_in, memory), None
    else:
        rows, weights = model.decode_aligned(batch.target_in, memory)
        alignment = _alignment_loss(weights, batch.links)
    real = batch.target_out.flatten().nonzero().squeeze(1)  # padding is id 0
    rows = rows.flatten(0, 1)[real]  # [b, t, c] -> [real, c]
    target = batch.target_out.flatten()[real]
    weight = model.embedding.tokens.weight  # the projection behind `model.logits`
    return Losses(cross_entropy(rows, weight, target, smoothing), alignment)


def _alignment_loss(weights: Tensor, links: Tensor) -> Tensor:
    tiny = torch.finfo(torch.float32).tiny
    surprise = -(links * weights.float().clamp_min(tiny).log()).sum()
    return surprise / links.sum().clamp_min(1.0)
