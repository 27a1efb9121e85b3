"""Blocks: attention and feed-forward, each beside a residual stream that it adds to.

    pre-norm    x + f(norm(x))
    post-norm   norm(x + f(x))

A decoder block reads itself, then the memory, then thinks: the order of Vaswani et al. 2017.
Pre-norm: Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from crossattention.argument import check_number
from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.cache import Cache
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.project import check_stream
from crossattention.nn.self_attention import SelfAttention


class Residual(nn.Module):
    """Add what a part computes to the stream, normed before ("pre") or after ("post").

    >>> import torch
    >>> Residual(8, dropout=0.0, norm="pre")(torch.zeros(1, 2, 8), lambda x: x + 1).sum().item()
    16.0
    """

    def __init__(self, width: int, dropout: float, norm: str) -> None:
        super().__init__()
        if norm not in ("pre", "post"):
            do = "choose where the norm stands"
            raise ContractError(complaint("norm", '"pre" or "post"', describe(norm), do))
        self.before = norm == "pre"
        self.norm: nn.Module = nn.LayerNorm(width)
        self.width = width
        self.dropout = dropping(dropout)

    def forward(self, stream: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute x + part(norm(x)), or norm(x + part(x))."""
        check_stream("stream", stream, self.width, self.norm)
        if self.before:
            added: Tensor = self.dropout(part(self.norm(stream)))
            return stream + added
        normed: Tensor = self.norm(stream + self.dropout(part(stream)))
        return normed


def dropping(dropout: float) -> nn.Dropout:
    """Drop numbers with a probability that is checked.

    >>> dropping(0.5)
    Dropout(p=0.5, inplace=False)
    """
    do = "it is the probability that a number is dropped"
    return nn.Dropout(check_number("dropout", dropout, "from 0 to 1", do, low=0, high=1))


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward.

    Args:
        width, heads: of the stream. feed_forward: hidden width. dropout: on what each part adds.
        norm: "pre" or "post".

    >>> import torch
    >>> EncoderBlock(8, 2, 32)(torch.randn(1, 5, 8)).shape
    torch.Size([1, 5, 8])
    """

    def __init__(
        self, width: int, heads: int, feed_forward: int, *, dropout: float = 0.0, norm: str = "pre"
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(width, heads)
        self.feed_forward = FeedForward(width, feed_forward)
        self.around_self = Residual(width, dropout, norm)
        self.around_feed = Residual(width, dropout, norm)

    def forward(self, stream: Tensor, readable: Tensor | None = None) -> Tensor:
        """Map `[b, t, c]` to `[b, t, c]`; `readable` [b, t] is True for real rows."""
        stream = self.around_self(stream, lambda x: self.self_attention(x, readable=readable))
        output: Tensor = self.around_feed(stream, self.feed_forward)
        return output


class DecoderBlock(nn.Module):
    """Masked self-attention, cross-attention, feed-forward.

    Args as `EncoderBlock`.

    >>> import torch
    >>> DecoderBlock(8, 2, 32)(torch.randn(1, 3, 8), torch.randn(1, 5, 8)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self, width: int, heads: int, feed_forward: int, *, dropout: float = 0.0, norm: str = "pre"
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(width, heads)
        self.cross_attention = CrossAttention(width, heads)
        self.feed_forward = FeedForward(width, feed_forward)
        self.around_self = Residual(width, dropout, norm)
        self.around_cross = Residual(width, dropout, norm)
        self.around_feed = Residual(width, dropout, norm)

    def forward(self, stream: Tensor, memory: Tensor | Memory) -> Tensor:
        """Map `[b, t, c]` to `[b, t, c]` all at once, each row seeing its past only."""
        return self.read_memory(self.read_self(stream), memory)

    def read_self(self, stream: Tensor) -> Tensor:
        """Let each row read its past: the first third of the block."""
        output: Tensor = self.around_self(stream, lambda x: self.self_attention(x, causal=True))
        return output

    def step_self(self, stream: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Let the rows that follow the cache read it; return the longer cache too."""
        kept = [cache]

        def step(rows: Tensor) -> Tensor:
            output, kept[0] = self.self_attention.step(rows, kept[0])
            return output

        return self.around_self(stream, step), kept[0]

    def read_memory(self, stream: Tensor, memory: Tensor | Memory) -> Tensor:
        """Read the memory, then think: the other two thirds."""
        stream = self.around_cross(stream, lambda x: self.cross_attention(x, memory))
        output: Tensor = self.around_feed(stream, self.feed_forward)
        return output

    def weights(self, stream: Tensor, memory: Memory, heads: Sequence[int]) -> Tensor:
        """Show what some heads read from the stream that `read_memory` is given, [b, k, t, s]."""
        asked = self.around_cross.norm(stream) if self.around_cross.before else stream
        return self.cross_attention.weights(asked, memory, heads=heads)
