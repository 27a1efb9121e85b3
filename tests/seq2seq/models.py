"""Tiny random models and sources for the tests of seq2seq, and a slow second opinion."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from crossattention.seq2seq import Config, EncoderDecoder, Hypothesis


def tiny(
    seed: int = 0, *, vocabulary: int = 7, norm: str = "pre", positions: str = "sinusoidal"
) -> EncoderDecoder:
    """A model of width 12 in float64, in which equality is judged; 7 tokens make ends common."""
    torch.manual_seed(seed)
    config = Config(
        vocabulary=vocabulary, width=12, heads=3, feed_forward=16, encoder_layers=2,
        decoder_layers=2, norm=norm, positions=positions, max_length=32,
    )  # fmt: skip
    return EncoderDecoder(config).double().eval()


def sources(lengths: Sequence[int], vocabulary: int = 7, seed: int = 0) -> tuple[Tensor, list[int]]:
    """Random sources [b, s]; what stands beyond a length are tokens like any other."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), max(lengths, default=1))
    return torch.randint(3, vocabulary, shape, generator=generator), list(lengths)


@torch.no_grad()
def judge(model: EncoderDecoder, source: Tensor, hypothesis: Hypothesis) -> tuple[Tensor, Tensor]:
    """Read one target all at once: log-probabilities [t + 1] and what its tokens read, [t, s].

    `source` is `[s]`, without padding.
    """
    target = torch.tensor([[model.config.begin, *hypothesis.tokens]])
    rows, maps = model.decode_aligned(target, model.encode(source[None]))
    following = torch.tensor([*hypothesis.tokens, model.config.end])
    scores = model.logits(rows)[0].log_softmax(-1)
    return scores.gather(-1, following[:, None])[:, 0], maps[0, 1:]
