"""A resampler: n learned queries read any number of rows, layer after layer, and n rows remain.

    x = queries,   then `depth` times   x = block(x, m̂),   m̂ = (m - mean) / deviation

The rows are normed once, without a learned scale; each layer's own scale and shift of the norm
live in its key and value projections, which is an exact rewrite: W(γ·m̂ + β) + b is a linear map
of m̂. So one copy of the rows serves all layers. Papers: Lee et al. 2019, "Set Transformer";
Alayrac et al. 2022, "Flamingo".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from crossattention.argument import check_flag, check_size
from crossattention.memory import Memory
from crossattention.nn.cross_block import CrossBlock
from crossattention.nn.joint_block import JointBlock
from crossattention.nn.learned import LearnedQueries
from crossattention.nn.normed import memory_of, normed, remembered


class Resampler(nn.Module):
    """Turn any number of rows into n: [b, s, c_m] -> [b, n, c].

    Args:
        width: c, of the queries and of the output.
        heads: h.
        queries: n.
        memory_width: c_m, of the rows; None: `width`.
        depth: how often the queries read.
        feed_forward: hidden width of the blocks; None: 4 · width.
        shared: one block applied `depth` times, its memory projected once; else a block each.
        reads_queries: keys and values come from the rows and from the queries together, in one
            softmax, as Flamingo's and Idefics2's do.

    Submodules that may be replaced: `queries` (`LearnedQueries`), `memory_norm` (`nn.LayerNorm`
    without scale), `blocks` (`CrossBlock`, or `JointBlock` where queries are read; pre-norm),
    `output_norm` (`nn.LayerNorm`). Attribute that may be set: `form` ("auto"), as in
    `CrossAttention.remember`.

    Differs from the papers' code: the norm of the rows has no scale of its own; `fold_norm` puts
    that of trained weights where it belongs.

    >>> import torch
    >>> resampler = Resampler(8, 2, queries=3, memory_width=6)
    >>> resampler(torch.randn(2, 5, 6), lengths=[5, 4]).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        queries: int,
        memory_width: int | None = None,
        depth: int = 2,
        feed_forward: int | None = None,
        shared: bool = False,
        reads_queries: bool = False,
    ) -> None:
        super().__init__()
        check_size("depth", depth, 1, "pass how often the queries read")
        check_flag("shared", shared, "choose whether all readings share one block")
        check_flag("reads_queries", reads_queries, "choose whether queries are read, too")
        self.queries: nn.Module = LearnedQueries(queries, width)
        self.memory_width = width if memory_width is None else memory_width
        check_size("memory_width", self.memory_width, 1, "pass the width of the rows")
        self.memory_norm: nn.Module = nn.LayerNorm(self.memory_width, elementwise_affine=False)
        hidden = 4 * width if feed_forward is None else feed_forward
        block = JointBlock if reads_queries else CrossBlock
        self.blocks = nn.ModuleList(
            block(width, heads, hidden, memory_width=self.memory_width)
            for _ in range(1 if shared else depth)
        )
        self.output_norm: nn.Module = nn.LayerNorm(width)
        self.depth = depth
        self.form = "auto"
        self._count = queries

    def remember(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None = None
    ) -> Memory:
        """Norm rows, and prepare them for every block, once.

        Args:
            rows: `[m, s, c_m]`; or a Memory of rows that `memory_norm` has normed already.
            lengths: integers `[m]`, the real rows of each memory; the rest may hold anything.

        >>> import torch
        >>> Resampler(8, 2, queries=3).remember(torch.randn(2, 5, 8)).size
        (2, 5)
        """
        memory = normed(rows, lengths, self.memory_norm, self.memory_width)
        reads = self.depth // len(self.blocks)
        for block in self._blocks():
            asked = self._count * reads
            memory = block.remember(memory, queries=asked, reads=reads, form=self.form)
        return remembered(memory, rows)

    def forward(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Resample.

        Args:
            rows: `[b, s, c_m]`, or a Memory from `remember`, whatever sequences share it.
            lengths: integers `[b]`, as in `remember`; None beside a Memory.
        Returns:
            `[b, n, c]`; of an empty input, what the queries make of themselves.
        """
        memory = memory_of(rows, lengths, self.remember)
        stream: Tensor = self.queries(memory.sequences)  # [n, c] -> [b, n, c]
        blocks = self._blocks()
        for index in range(self.depth):
            stream = blocks[index % len(blocks)](stream, memory)
        output: Tensor = self.output_norm(stream)
        return output

    def _blocks(self) -> list[CrossBlock | JointBlock]:
        return cast(list[CrossBlock | JointBlock], list(self.blocks))
