"""A block that reads a memory and then thinks, without a look at its own stream.

    x = x + read(norm(x), memory),   x = x + feed_forward(norm(x))          pre-norm

Learned queries are made of these, and any stream without a past: Lee et al. 2019, "Set
Transformer" (multihead attention block); Jaegle et al. 2021, "Perceiver".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crossattention.memory import Memory
from crossattention.nn.block import Residual
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.feed_forward import FeedForward


class CrossBlock(nn.Module):
    """Cross-attention, then feed-forward: learned queries, or any stream without a past.

    Args:
        width, heads: of the stream.
        feed_forward: hidden width.
        memory_width: width of the memory's rows; None: `width`.
        dropout: on what each part adds.
        norm: "pre" or "post".

    Submodules that may be replaced: `cross_attention`, `feed_forward`, and the norms,
    `around_cross.norm` and `around_feed.norm`.

    >>> import torch
    >>> block = CrossBlock(8, 2, 32, memory_width=6)
    >>> block(torch.randn(1, 3, 8), torch.randn(1, 5, 6)).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feed_forward: int,
        *,
        memory_width: int | None = None,
        dropout: float = 0.0,
        norm: str = "pre",
    ) -> None:
        super().__init__()
        self.cross_attention: CrossAttention = CrossAttention(
            width, heads, memory_width=memory_width
        )
        self.feed_forward: nn.Module = FeedForward(width, feed_forward)
        self.around_cross = Residual(width, dropout, norm)
        self.around_feed = Residual(width, dropout, norm)

    def remember(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
        form: str = "auto",
    ) -> Memory:
        """Prepare a memory for reading, once; arguments as in `CrossAttention.remember`.

        >>> import torch
        >>> block = CrossBlock(8, 2, 32)
        >>> block.remember(torch.randn(1, 5, 8), lengths=[4]).size
        (1, 5)
        """
        return self.cross_attention.remember(rows, lengths, queries=queries, reads=reads, form=form)

    def forward(self, stream: Tensor, memory: Tensor | Memory) -> Tensor:
        """Map `[b, t, c]` to `[b, t, c]`, reading the memory."""
        stream = self.around_cross(stream, lambda x: self.cross_attention(x, memory))
        output: Tensor = self.around_feed(stream, self.feed_forward)
        return output
