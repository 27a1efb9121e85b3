"""Gated cross-attention: a frozen stream begins to listen, through gates that are closed at first.

    x = x + tanh(gate_attention) · attention(norm(x), media)
    x = x + tanh(gate_feed) · feed_forward(norm(x))

A closed gate lets nothing through and a row that reads nothing is passed by: both leave the stream
as it was, to the bit. Paper: Alayrac et al. 2022, "Flamingo: a Visual Language Model for Few-Shot
Learning", section 2.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crossattention.argument import check_size
from crossattention.attention.hidden import build_mask
from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.block import dropping
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.interleaved import visible_media
from crossattention.nn.pose import check_sequences
from crossattention.nn.project import check_kind, check_stream


class GatedCrossAttention(nn.Module):
    """Let a stream read media, then think about what was read, each through a gate.

    Args:
        width, heads: of the stream.
        memory_width: width of the media's rows; None: `width`.
        feed_forward: hidden width; None: 4 · width.
        reads: which media a text row reads where they are interleaved: "latest", or
            "all_previous" (see `crossattention.media.from_media`).
        gates: "scalar" (one number for each gate) or "vector" (one for each of the c channels).
        dropout: probability that a number of what each part adds is dropped in training.

    Parameters: `gate_attention` and `gate_feed`, `[1]` or `[c]`, from 0. Their gradients are not 0
    there, so that they open; the parts behind them learn once they have. Submodules that may be
    replaced: `cross_attention` and what it holds, `feed_forward`, `norm_attention`, `norm_feed`.

    Differs from the paper and from Hugging Face's Idefics: there a row that reads nothing is still
    fed forward, so that text before any medium changes as the gates open. Here it never does.

    >>> layer = GatedCrossAttention(8, 2, memory_width=6)
    >>> stream = torch.randn(1, 3, 8)
    >>> torch.equal(layer(stream, torch.randn(1, 5, 6)), stream)
    True
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        memory_width: int | None = None,
        feed_forward: int | None = None,
        reads: str = "latest",
        gates: str = "scalar",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if reads not in ("latest", "all_previous"):
            want, do = '"latest" or "all_previous"', "choose which media a text row reads"
            raise ContractError(complaint("reads", want, describe(reads), do))
        if gates not in ("scalar", "vector"):
            want, do = '"scalar" or "vector"', "choose one gate for all channels, or one for each"
            raise ContractError(complaint("gates", want, describe(gates), do))
        self.cross_attention: CrossAttention = CrossAttention(
            width, heads, memory_width=memory_width
        )
        do = "pass the width between its two maps, or None for 4 times the stream's"
        hidden = (
            4 * width if feed_forward is None else check_size("feed_forward", feed_forward, 1, do)
        )
        self.width, self.reads = width, reads
        self.feed_forward: nn.Module = FeedForward(width, hidden)
        self.norm_attention: nn.Module = nn.LayerNorm(width)
        self.norm_feed: nn.Module = nn.LayerNorm(width)
        self.gate_attention = nn.Parameter(torch.zeros(1 if gates == "scalar" else width))
        self.gate_feed = nn.Parameter(torch.zeros_like(self.gate_attention))
        self.dropout = dropping(dropout)

    def remember(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
        form: str = "auto",
    ) -> Memory:
        """Prepare media for reading, once for all steps; arguments as in `CrossAttention.remember`.

        Several layers share one Memory: give each what the one before it returned.

        >>> first, second = GatedCrossAttention(8, 2), GatedCrossAttention(8, 2)
        >>> memory = second.remember(first.remember(torch.randn(1, 5, 8), lengths=[4]))
        >>> len(memory.contents)
        2
        """
        return self.cross_attention.remember(rows, lengths, queries=queries, reads=reads, form=form)

    def forward(
        self,
        stream: Tensor,
        memory: Tensor | Memory,
        *,
        count: Tensor | None = None,
        media: Tensor | None = None,
    ) -> Tensor:
        """Read and think.

        Args:
            stream: `[b, t, c]`.
            memory: a Memory from `remember`, or rows `[b, s, c_k]`.
            count: integers `[b, t]`, how many media began at or before each row of the stream (see
                `crossattention.media.media_count`); step by step, those of the step's rows.
            media: integers `[s]` or `[m|1, s]`, the medium, from 1, that each memory row belongs
                to. Both None: every row of the stream reads every memory row.
        Returns:
            `[b, t, c]` in the stream's dtype; unchanged to the bit where a row reads nothing, and
            everywhere while both gates are 0.
        Raises:
            ContractError: one of `count` and `media` without the other; shapes, dtypes, devices,
                values; a memory made by others, or stale.
        """
        memory, visible = self._open(stream, memory, count, media)
        asked = self.norm_attention(stream)
        read = self.dropout(self.cross_attention(asked, memory, visible=visible))
        heard = _through(self.gate_attention, read, stream)
        thought = self.dropout(self.feed_forward(self.norm_feed(heard)))
        output = _through(self.gate_feed, thought, heard)
        reads = self._who_reads(stream, memory, visible)
        return output if reads is None else torch.where(reads, output, stream)

    def weights(
        self,
        stream: Tensor,
        memory: Tensor | Memory,
        *,
        count: Tensor | None = None,
        media: Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        """Show what each row reads, however far the gate is open: [b, h, t, s] before dropout.

        Arguments as in `forward`; `heads` keeps some heads only. Rows sum to 1, to 0 where empty.
        """
        memory, visible = self._open(stream, memory, count, media)
        asked = self.norm_attention(stream)
        return self.cross_attention.weights(asked, memory, visible=visible, heads=heads)

    def _open(
        self, stream: Tensor, memory: Tensor | Memory, count: Tensor | None, media: Tensor | None
    ) -> tuple[Memory, Tensor | None]:
        """Check a reading; give the memory and who sees what, bool [b, 1, t, s] or None."""
        check_stream("stream", stream, self.width, self.norm_attention)
        if type(self.norm_attention) is nn.LayerNorm:  # it keeps the stream's dtype
            check_kind("stream", stream, self.cross_attention.query_projection)
        if not isinstance(memory, Memory):
            memory = self.remember(memory, queries=stream.shape[1], reads=1)
        check_sequences("stream", len(stream), memory, f"shape {list(stream.shape)}")
        return memory, visible_media(stream, memory, count, media, self.reads)

    def _who_reads(self, stream: Tensor, memory: Memory, visible: Tensor | None) -> Tensor | None:
        """Say which rows read anything, bool [b|1, t|1, 1]; None: all do."""
        row, extent = self.cross_attention.null_row, memory.holding.extent
        if row is not None and row.always_read:
            return None
        mask, _ = build_mask(
            (len(stream), 1, stream.shape[1], extent.size[1]), stream.device, extent.readable,
            memory.owner, visible, None, None, extent.may_be_empty,
        )  # fmt: skip
        return None if mask.reads is None else mask.reads[:, 0]  # [b|1, 1, t|1, 1] -> [b|1, t|1, 1]


def _through(gate: Tensor, part: Tensor, stream: Tensor) -> Tensor:
    """Compute stream + tanh(gate) · part, in the stream's dtype.

    Behind a closed gate the product must neither be NaN nor -0.0 + 0.0, which is 0.0: numbers that
    are not finite are left out, and 0 - (±0.0) is 0.0, which every number survives being less of.
    A `torch.where` on the gate would do the same and give it no gradient to open by.
    """
    opened = torch.tanh(gate)
    passed = opened * part.masked_fill((opened == 0) & ~part.isfinite(), 0)
    return (stream - (0 - passed)).to(stream.dtype)
