"""A Perceiver: a fixed number of latents read an input of any size, again and again.

    z = latents,   then `reads` times   z = read_block(z, m̂),  z = latent_block(z) several times

The latents cost O(M·n) for M input rows where self-attention would cost O(M²). The input is normed
once, without a learned scale, and kept once: every reading folds its query through the key
projection and maps the average of the rows, so that no layer ever projects them. Each layer's
scale and shift of the norm live in its key and value projections, an exact rewrite. Papers: Jaegle
et al. 2021, "Perceiver"; Jaegle et al. 2022, "Perceiver IO".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from crossattention.argument import check_flag, check_size
from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.block import EncoderBlock
from crossattention.nn.cross_block import CrossBlock
from crossattention.nn.learned import LearnedQueries
from crossattention.nn.normed import memory_of, normed, remembered


class Perceiver(nn.Module):
    """Let n latents read any number of rows: [b, M, c_m] -> [b, n, c].

    Args:
        width: c, of the latents.
        heads: of readings and of latent blocks; or a pair, where they differ.
        memory_width: c_m, of the input's rows, positions included: see `fourier_features`.
        queries: n, how many latents.
        reads: how often the latents read the input.
        latent_layers: self-attention blocks of the latents after each reading.
        shared: latent blocks of all readings share weights, and so do all readings but the first.
        feed_forward: hidden width of all blocks; None: 4 · width.

    Submodules that may be replaced: `queries` (`LearnedQueries`), `memory_norm` (`nn.LayerNorm`
    without scale), `reading` (`CrossBlock`s) and `latent` (lists of `EncoderBlock`s), all pre-norm
    with `nn.GELU`. Attributes that may be set: `form` ("raw", as in `CrossAttention.remember`) and
    `repeats` (1), how often the latent blocks are applied after each reading.

    Differs from the papers' code: the norm of the input has no scale of its own (`fold_norm` puts
    that of trained weights where it belongs), and the input is never projected.

    >>> import torch
    >>> perceiver = Perceiver(8, 2, memory_width=6, queries=3, reads=2, latent_layers=1)
    >>> perceiver(torch.randn(2, 50, 6), lengths=[50, 40]).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int | tuple[int, int],
        *,
        memory_width: int,
        queries: int,
        reads: int = 1,
        latent_layers: int = 6,
        shared: bool = False,
        feed_forward: int | None = None,
    ) -> None:
        super().__init__()
        check_size("reads", reads, 1, "pass how often the latents read the input")
        check_size("latent_layers", latent_layers, 0, "pass how many blocks follow each reading")
        check_flag("shared", shared, "choose whether readings share weights")
        check_size("memory_width", memory_width, 1, "pass the width of the input's rows")
        pair = _pair(heads)
        hidden = 4 * width if feed_forward is None else feed_forward
        self.queries: nn.Module = LearnedQueries(queries, width)
        self.memory_norm: nn.Module = nn.LayerNorm(memory_width, elementwise_affine=False)
        self.reading = nn.ModuleList(
            CrossBlock(width, pair[0], hidden, memory_width=memory_width)
            for _ in range(min(reads, 2) if shared else reads)
        )
        self.latent = nn.ModuleList(
            nn.ModuleList(EncoderBlock(width, pair[1], hidden) for _ in range(latent_layers))
            for _ in range(1 if shared else reads)
        )
        for block in (*self.reading, *(each for stack in self._latent() for each in stack)):
            cast(CrossBlock, block).feed_forward.activation = nn.GELU()
        self.memory_width, self.reads, self.repeats = memory_width, reads, 1
        self.form = "raw"
        self._count = queries

    def remember(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None = None
    ) -> Memory:
        """Norm the input once, for all readings.

        Args:
            rows: `[m, M, c_m]`; or a Memory of rows that `memory_norm` has normed already.
            lengths: integers `[m]`, the real rows of each input; the rest may hold anything.

        >>> import torch
        >>> perceiver = Perceiver(8, 2, memory_width=6, queries=3, reads=4, latent_layers=0)
        >>> memory = perceiver.remember(torch.randn(2, 50, 6))
        >>> memory.nbytes == 4 * 2 * 50 * 6
        True
        """
        memory = normed(rows, lengths, self.memory_norm, self.memory_width)
        order = [min(index, len(self.reading) - 1) for index in range(self.reads)]
        for index, block in enumerate(self._reading()):
            reads = order.count(index)
            asked = self._count * reads
            memory = block.remember(memory, queries=asked, reads=reads, form=self.form)
        return remembered(memory, rows)

    def forward(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """Read the input.

        Args:
            rows: `[b, M, c_m]`, or a Memory from `remember`, whatever sequences share it.
            lengths: integers `[b]`, as in `remember`; None beside a Memory.
        Returns:
            `[b, n, c]`; of an empty input, what the latents make of themselves.
        """
        memory = memory_of(rows, lengths, self.remember)
        stream: Tensor = self.queries(memory.sequences)  # [n, c] -> [b, n, c]
        reading, latent = self._reading(), self._latent()
        for index in range(self.reads):
            stream = reading[min(index, len(reading) - 1)](stream, memory)
            for _ in range(self.repeats):
                for block in latent[min(index, len(latent) - 1)]:
                    stream = block(stream)
        return stream

    def _reading(self) -> list[CrossBlock]:
        return cast(list[CrossBlock], list(self.reading))

    def _latent(self) -> list[nn.ModuleList]:
        return cast(list[nn.ModuleList], list(self.latent))


def _pair(heads: int | tuple[int, int]) -> tuple[int, int]:
    pair = heads if isinstance(heads, tuple) else (heads, heads)
    want, do = "a number, or one for readings and one for latent blocks", "pass either"
    if len(pair) != 2:
        raise ContractError(complaint("heads", want, describe(heads), do))
    return pair
