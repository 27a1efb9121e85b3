"""A query former: learned queries speak with one another in every layer, and read in some.

    x = norm(queries),   then in each layer, post-norm:
    x = norm(x + self(x)),   x = norm(x + read(x, m)) in every `every`-th,   x = norm(x + feed(x))

The bridge between a frozen image encoder and a frozen language model. Paper: Li et al. 2023,
"BLIP-2".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crossattention.argument import check_size
from crossattention.memory import Memory
from crossattention.nn.block import Residual, dropping
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.learned import LearnedQueries
from crossattention.nn.normed import memory_of, remembered
from crossattention.nn.self_attention import SelfAttention


class QueryFormer(nn.Module):
    """Turn any number of rows into n: [b, s, c_m] -> [b, n, c].

    Args:
        width: c, of the queries and of the output.
        heads: h.
        queries: n.
        memory_width: c_m, of the rows.
        depth: layers.
        every: layers 0, every, 2 · every, ... read the rows; the others do not.
        feed_forward: hidden width of the layers; None: 4 · width.
        dropout: on attention weights and on what each part adds.

    Submodules that may be replaced: `queries` (`LearnedQueries`), `query_norm` (`nn.LayerNorm`),
    and those of each `QueryFormerLayer` in `layers`. Attribute that may be set: `form` ("auto"),
    as in `CrossAttention.remember`.

    Differs from BLIP-2's: no text beside the queries.

    >>> import torch
    >>> former = QueryFormer(8, 2, queries=3, memory_width=6, depth=2)
    >>> former(torch.randn(2, 5, 6), lengths=[5, 4]).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        queries: int,
        memory_width: int,
        depth: int,
        every: int = 2,
        feed_forward: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_size("depth", depth, 1, "pass how many layers there are")
        check_size("every", every, 1, "1 lets every layer read, 2 every second")
        self.queries: nn.Module = LearnedQueries(queries, width)
        self.query_norm: nn.Module = nn.LayerNorm(width)
        hidden = 4 * width if feed_forward is None else feed_forward
        self.layers = nn.ModuleList(
            QueryFormerLayer(
                width,
                heads,
                hidden,
                memory_width=None if index % every else memory_width,
                dropout=dropout,
            )
            for index in range(depth)
        )
        self.dropout = dropping(dropout)
        self.form = "auto"
        self._count = queries

    def remember(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None = None
    ) -> Memory:
        """Prepare rows for every layer that reads them, once.

        Args:
            rows: `[m, s, c_m]`, or a Memory in which layers have written already.
            lengths: integers `[m]`, the real rows of each memory; the rest may hold anything.

        >>> import torch
        >>> former = QueryFormer(8, 2, queries=3, memory_width=6, depth=3)
        >>> len(former.remember(torch.randn(2, 5, 6)).contents)
        2
        """
        memory = Memory.of(rows, lengths)
        for layer in self.layers:
            reader = layer.cross_attention
            if isinstance(reader, CrossAttention):
                asked = self._count
                memory = reader.remember(memory, queries=asked, reads=1, form=self.form)
        return remembered(memory, rows)

    def forward(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Read the rows.

        Args:
            rows: `[b, s, c_m]`, or a Memory from `remember`, whatever sequences share it.
            lengths: integers `[b]`, as in `remember`; None beside a Memory.
        Returns:
            `[b, n, c]`; of an empty input, what the queries make of themselves.
        """
        memory = memory_of(rows, lengths, self.remember)
        stream: Tensor = self.query_norm(self.queries(memory.sequences))  # [n, c] -> [b, n, c]
        stream = self.dropout(stream)
        for layer in self.layers:
            stream = layer(stream, memory)
        return stream


class QueryFormerLayer(nn.Module):
    """Self-attention, cross-attention where there is a memory width, feed-forward; post-norm.

    Args:
        width, heads, feed_forward: of the stream, and the hidden width.
        memory_width: width of the memory's rows; None: a layer that does not read.
        dropout: on attention weights and on what each part adds.

    Submodules that may be replaced: `self_attention`, `cross_attention` (None in a layer that does
    not read), `feed_forward` (with `nn.GELU`), `around_self`, `around_cross`, `around_feed`.

    >>> import torch
    >>> layer = QueryFormerLayer(8, 2, 32, memory_width=6)
    >>> layer(torch.randn(1, 3, 8), torch.randn(1, 5, 6)).shape
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
    ) -> None:
        super().__init__()
        self.self_attention = SelfAttention(width, heads, dropout=dropout)
        self.around_self = Residual(width, dropout, "post")
        self.cross_attention: CrossAttention | None = None
        self.around_cross: Residual | None = None
        if memory_width is not None:
            self.cross_attention = CrossAttention(
                width, heads, memory_width=memory_width, dropout=dropout
            )
            self.around_cross = Residual(width, dropout, "post")
        self.feed_forward = FeedForward(width, feed_forward)
        self.feed_forward.activation = nn.GELU()
        self.around_feed = Residual(width, dropout, "post")

    def forward(self, stream: Tensor, memory: Tensor | Memory) -> Tensor:
        """Map `[b, n, c]` to `[b, n, c]`, reading the memory if the layer does."""
        stream = self.around_self(stream, self.self_attention)
        reader, around = self.cross_attention, self.around_cross
        if reader is not None and around is not None:
            stream = around(stream, lambda x: reader(x, memory))
        output: Tensor = self.around_feed(stream, self.feed_forward)
        return output
