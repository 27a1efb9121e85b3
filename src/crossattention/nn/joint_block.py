"""A block whose queries read a memory and one another in one softmax, and then think.

    x̂ = norm(x),   x = x + read(x̂, rows of memory and of x̂),   x = x + feed_forward(norm(x))

Papers: Alayrac et al. 2022, "Flamingo" (perceiver resampler); Laurençon et al. 2024, "What matters
when building vision-language models?".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from crossattention.memory import Memory
from crossattention.nn.block import Residual
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.multi import MultiCrossAttention
from crossattention.nn.reader import Reader


class JointBlock(nn.Module):
    """Read the memory and the stream itself in one softmax, then map each row.

    Args:
        width, heads: of the stream.
        feed_forward: hidden width.
        memory_width: width of the memory's rows; None: `width`.
        dropout: on what each part adds.
        norm: "pre" or "post".

    Submodules that may be replaced: `cross_attention` (a `MultiCrossAttention` of two memories,
    the memory's rows and the stream's), `feed_forward`, `around_cross.norm`, `around_feed.norm`.

    Differs from Flamingo's: rows of the memory and of the stream have key and value projections of
    their own; with equal weights it is the same.

    >>> import torch
    >>> block = JointBlock(8, 2, 32, memory_width=6)
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
        widths = (width if memory_width is None else memory_width, width)
        self.cross_attention = MultiCrossAttention(width, heads, widths, combine="joint")
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
        >>> JointBlock(8, 2, 32).remember(torch.randn(1, 5, 8), lengths=[4]).size
        (1, 5)
        """
        reader = cast(Reader, self.cross_attention.readers[0])
        return reader.remember(rows, lengths, queries=queries, reads=reads, form=form)

    def forward(self, stream: Tensor, memory: Tensor | Memory) -> Tensor:
        """Map `[b, t, c]` to `[b, t, c]`, reading the memory and the stream."""
        stream = self.around_cross(stream, lambda x: self.cross_attention(x, (memory, x)))
        output: Tensor = self.around_feed(stream, self.feed_forward)
        return output
