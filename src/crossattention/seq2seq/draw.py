"""Draw the next token: temperature, then the likeliest k, then the likeliest of total p.

    p_i ∝ exp(log p_i / temperature) over the tokens that are left

Papers: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p).
"""

from __future__ import annotations

import torch
from torch import Tensor

from crossattention.seq2seq.options import SampleOptions


def draw(scores: Tensor, options: SampleOptions, generator: torch.Generator | None) -> Tensor:
    """Draw one token for each row of log-probabilities.

    Args:
        scores: `[..., vocabulary]`, -inf where hidden.
        options: the distribution.
        generator: where chance comes from; None: torch's own.
    Returns:
        int64 `[...]`.

    >>> draw(torch.tensor([[-3.0, -0.1, -2.0]]), SampleOptions(top_k=1), None).tolist()
    [1]
    """
    scaled, tokens = (scores / options.temperature).flatten(0, -2), None  # -> [rows, vocabulary]
    if options.top_k is not None or options.top_p < 1:
        k = min(options.top_k or scaled.shape[-1], scaled.shape[-1])
        scaled, tokens = scaled.topk(k)  # sorted, likeliest first
    chances = scaled.softmax(-1)
    if options.top_p < 1:
        before = chances.cumsum(-1) - chances  # what likelier tokens hold already
        chances = chances.masked_fill(before >= options.top_p, 0)
    drawn = torch.multinomial(chances, 1, generator=generator)  # [rows, 1]
    if tokens is not None:
        drawn = tokens.gather(-1, drawn)
    return drawn.view(scores.shape[:-1])
