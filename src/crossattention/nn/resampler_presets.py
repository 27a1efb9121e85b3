"""Published shapes of resamplers that read their queries, too, built of this package's modules.

Every size may be overridden. With the weights of the Hugging Face module that each names, copied
and with the norm of its rows folded (`fold_norm`), each gives the same numbers. Weights begin as
this package's do, not as those of the papers.
"""

from __future__ import annotations

from typing import cast

from torch import nn

from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.initialise import initialise
from crossattention.nn.joint_block import JointBlock
from crossattention.nn.multi import MultiCrossAttention
from crossattention.nn.reader import Reader
from crossattention.nn.resampler import Resampler
from crossattention.nn.swiglu import SwiGLU


def flamingo_resampler(
    width: int = 1280,
    heads: int = 16,
    *,
    queries: int = 64,
    depth: int = 6,
    key_width: int = 96,
    feed_forward: int | None = None,
    norms_heads: bool = False,
) -> Resampler:
    """Build Flamingo's resampler, Hugging Face's `IdeficsPerceiverResampler`.

    Args:
        width: of the queries and of the rows.
        heads, queries, depth: as in `Resampler`, which reads its queries, too.
        key_width: d and e, of one head.
        feed_forward: hidden width; None: 4 · width.
        norms_heads: whether queries and keys of each head are normed, `qk_layer_norms` there.

    Differs from theirs: rows and queries have key and value projections of their own; those of the
    rows have a bias, for the shift of the rows' norm.

    >>> import torch
    >>> flamingo_resampler(6, 2, queries=3, depth=1, key_width=4)(torch.randn(1, 5, 6)).shape
    torch.Size([1, 3, 6])
    """
    hidden = 4 * width if feed_forward is None else feed_forward
    resampler = _joint(width, queries, depth, hidden)
    for block in _blocks(resampler):
        block.cross_attention = _attention(width, heads, key_width, None, row_bias=True)
        feed = cast(FeedForward, block.feed_forward)
        feed.expand = nn.Linear(width, hidden, bias=False)
        feed.contract = nn.Linear(hidden, width, bias=False)
        initialise(feed)
        if norms_heads:
            block.cross_attention.query_norm = nn.LayerNorm(key_width)
            for reader in block.cross_attention.readers:
                cast(Reader, reader).key_norm = nn.LayerNorm(key_width)
    return resampler


def idefics2_resampler(
    width: int = 4096,
    heads: int = 16,
    *,
    queries: int = 64,
    depth: int = 3,
    key_width: int = 96,
    memory_heads: int = 4,
    feed_forward: int | None = None,
) -> Resampler:
    """Build the resampler of Idefics2, Hugging Face's `Idefics2PerceiverResampler`.

    Args:
        width, heads, queries, depth, key_width, feed_forward: as in `flamingo_resampler`.
        memory_heads: g, key and value heads.

    Its norms are root-mean-square, its feed-forward W_3 (silu(W_1 x) · W_2 x). Differs from
    theirs: rows and queries have key and value projections of their own.

    >>> import torch
    >>> small = idefics2_resampler(6, 2, queries=3, depth=1, key_width=4, memory_heads=1)
    >>> small(torch.randn(1, 5, 6)).shape
    torch.Size([1, 3, 6])
    """
    hidden = 4 * width if feed_forward is None else feed_forward
    resampler = _joint(width, queries, depth, hidden)
    resampler.memory_norm = nn.RMSNorm(width, eps=1e-6, elementwise_affine=False)
    resampler.output_norm = nn.RMSNorm(width, eps=1e-6)
    for block in _blocks(resampler):
        block.cross_attention = _attention(width, heads, key_width, memory_heads, row_bias=False)
        block.around_cross.norm = nn.RMSNorm(width, eps=1e-6)
        block.around_feed.norm = nn.RMSNorm(width, eps=1e-6)
        feed = cast(FeedForward, block.feed_forward)
        feed.expand = nn.Linear(width, 2 * hidden, bias=False)
        feed.activation = SwiGLU()
        feed.contract = nn.Linear(hidden, width, bias=False)
        initialise(feed)
    return resampler


def _joint(width: int, queries: int, depth: int, hidden: int) -> Resampler:
    return Resampler(
        width, 1, queries=queries, depth=depth, feed_forward=hidden, reads_queries=True
    )  # fmt: skip


def _blocks(resampler: Resampler) -> list[JointBlock]:
    return cast(list[JointBlock], list(resampler.blocks))


def _attention(
    width: int, heads: int, key_width: int, memory_heads: int | None, row_bias: bool
) -> MultiCrossAttention:
    """Read rows and queries; only the rows' projections may have a bias."""
    layer = MultiCrossAttention(
        width, heads, (width, width), key_width=key_width, memory_heads=memory_heads, bias=False
    )
    if row_bias:
        layer.readers[0] = Reader(layer.sizes, True, 0.0)
        initialise(layer.readers[0])
    return layer
