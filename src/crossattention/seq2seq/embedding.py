"""Tokens to rows: a scaled embedding plus positions, tied to the output projection.

x_t = √c · E[token_t] + P[t],   P sinusoidal (Vaswani et al. 2017, section 3.5) or learned
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from crossattention.argument import check_range, check_tensor
from crossattention.errors import ContractError, complaint
from crossattention.seq2seq.config import Config


class Embedding(nn.Module):
    """Embed tokens [b, t] as rows [b, t, c], and score rows against all tokens.

    >>> embed = Embedding(Config(vocabulary=11, width=8, heads=2))
    >>> embed.logits(embed(torch.tensor([[3, 4, 5]]))).shape
    torch.Size([1, 3, 11])
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.scale = math.sqrt(config.width)
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)
        self.dropout = nn.Dropout(config.dropout)
        self.positions: Tensor | nn.Parameter
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.randn(config.max_length, config.width) * 0.02)
        else:
            table = sinusoids(config.max_length, config.width)
            self.register_buffer("positions", table, persistent=False)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Embed int64 [b, t]; the first token stands at position `start`.

        Raises:
            ContractError: no tokens of the vocabulary, or more than there are positions.
        """
        want, do = "integers [b, t], int64 or int32", "pass token numbers, one row a sentence"
        check_tensor("tokens", tokens, (torch.int64, torch.int32), want, do, rank=2)
        weight, do = self.tokens.weight, "count tokens as the tokenizer does"
        if tokens.device != weight.device:
            places = f"{tokens.device} and {weight.device}"
            raise ContractError(complaint("tokens` and `weights", "on one device", places, do))
        size = weight.shape[0]
        check_range("tokens", tokens, size, f"between 0 and {size - 1}, the vocabulary", do)
        end = start + tokens.shape[1]
        if end > self.positions.shape[0]:
            want = f"at most {self.positions.shape[0]} long, the model's max_length"
            do = "cut it, or translate it in pieces"
            raise ContractError(complaint("tokens", want, f"{end} positions", do))
        rows = self.tokens(tokens) * self.scale + self.positions[start:end]
        dropped: Tensor = self.dropout(rows)
        return dropped

    def logits(self, rows: Tensor) -> Tensor:
        """Score rows [..., c] against every token [..., vocabulary]."""
        return nn.functional.linear(rows, self.tokens.weight.to(rows.dtype))


def sinusoids(length: int, width: int) -> Tensor:
    """Compute sine and cosine positions, [length, width].

    >>> sinusoids(3, 4)[0].tolist()
    [0.0, 0.0, 1.0, 1.0]
    """
    half = (width + 1) // 2
    rates = torch.exp(torch.arange(half) * (-math.log(10_000.0) / max(half - 1, 1)))
    angles = torch.arange(length)[:, None] * rates  # [length, half]
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width]
