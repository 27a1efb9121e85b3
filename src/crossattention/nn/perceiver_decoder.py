"""Perceiver IO's way out: output queries of any number read the latents.

    y = (q +) read(norm(q), ẑ),   o = y + feed_forward(norm(y)),   ẑ = (z - mean) / deviation

Each output row depends on its own query and the latents alone, so that an output of any size and
structure can be asked for, all at once or in parts. The scale and shift of the latents' norm live
in the key and value projections. Paper: Jaegle et al. 2022, "Perceiver IO".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crossattention.argument import check_flag, check_size
from crossattention.memory import Memory
from crossattention.nn.block import Residual
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.normed import normed, remembered
from crossattention.nn.project import check_stream


class PerceiverDecoder(nn.Module):
    """Let output queries read the latents: [b, o, c_o] -> [b, o, c_o].

    Args:
        width: c_o, of the output queries and of the output.
        heads: h.
        memory_width: c, of the latents.
        feed_forward: hidden width; None: `width`, as in the paper.
        adds_queries: whether queries are added to what they read. Leave it out where they mean
            something else than the output, as positions do.

    Submodules that may be replaced: `memory_norm` (`nn.LayerNorm` without scale), `query_norm`
    (`nn.LayerNorm`), `cross_attention`, `feed_forward` (with `nn.GELU`), `around_feed.norm`.
    Attribute that may be set: `form` ("auto"), as in `CrossAttention.remember`.

    >>> import torch
    >>> decoder = PerceiverDecoder(6, 2, memory_width=8)
    >>> decoder(torch.randn(1, 50, 6), torch.randn(1, 3, 8)).shape
    torch.Size([1, 50, 6])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        memory_width: int,
        feed_forward: int | None = None,
        adds_queries: bool = False,
    ) -> None:
        super().__init__()
        check_size("memory_width", memory_width, 1, "pass the width of the latents")
        check_flag("adds_queries", adds_queries, "choose whether they are added")
        self.memory_norm: nn.Module = nn.LayerNorm(memory_width, elementwise_affine=False)
        self.query_norm: nn.Module = nn.LayerNorm(width)
        self.cross_attention = CrossAttention(width, heads, memory_width=memory_width)
        self.feed_forward = FeedForward(width, width if feed_forward is None else feed_forward)
        self.feed_forward.activation = nn.GELU()
        self.around_feed = Residual(width, 0.0, "pre")
        self.width, self.memory_width = width, memory_width
        self.adds_queries, self.form = adds_queries, "auto"

    def remember(
        self,
        latents: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
    ) -> Memory:
        """Norm latents, and prepare them for reading, once.

        Args:
            latents: `[m, n, c]`; or a Memory of rows that `memory_norm` has normed already.
            lengths: integers `[m]`, the real latents of each; None: all.
            queries: how many output queries will read them in all; None expects many.
            reads: how many reads those come in; None: one query a read.

        >>> import torch
        >>> PerceiverDecoder(6, 2, memory_width=8).remember(torch.randn(2, 3, 8)).size
        (2, 3)
        """
        memory = normed(latents, lengths, self.memory_norm, self.memory_width)
        memory = self.cross_attention.remember(memory, queries=queries, reads=reads, form=self.form)
        return remembered(memory, latents)

    def forward(self, queries: Tensor, latents: Tensor | Memory) -> Tensor:
        """Answer output queries.

        Args:
            queries: `[b, o, c_o]`.
            latents: `[b, n, c]`, or a Memory from `remember`.
        Returns:
            `[b, o, c_o]`.
        """
        check_stream("queries", queries, self.width, self.query_norm)
        if not isinstance(latents, Memory):
            latents = self.remember(latents, queries=queries.shape[1], reads=1)
        read: Tensor = self.cross_attention(self.query_norm(queries), latents)
        found = queries + read if self.adds_queries else read
        output: Tensor = self.around_feed(found, self.feed_forward)
        return output
