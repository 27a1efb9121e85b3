"""Published shapes of latents and query formers, each built of this package's modules.

Every size may be overridden. With the weights of the Hugging Face module that each names, copied
and with the norm of its rows folded (`fold_norm`), each gives the same numbers. Weights begin as
this package's do, not as those of the papers.
"""

from __future__ import annotations

from typing import cast

from torch import nn

from crossattention.argument import check_size
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.cross_block import CrossBlock
from crossattention.nn.perceiver import Perceiver
from crossattention.nn.query_former import QueryFormer


def perceiver_latents(
    width: int = 1280,
    heads: int | tuple[int, int] = 8,
    *,
    memory_width: int = 768,
    queries: int = 256,
    key_width: int | None = None,
    latent_layers: int = 26,
    repeats: int = 1,
    feed_forward: int | None = None,
) -> Perceiver:
    """Build the latents of Perceiver IO: the encoder of Hugging Face's `PerceiverModel`.

    Args:
        width, heads, memory_width, queries, latent_layers: as in `Perceiver`, which reads once.
        key_width: d and e of the reading; None: memory_width // heads, as theirs.
        repeats: how often the latent blocks are applied, `num_blocks` there.
        feed_forward: hidden width; None: `width`.

    Differs from theirs: keys as wide as values, and queries are always added to what they read.

    >>> small = perceiver_latents(8, 2, memory_width=6, queries=3, latent_layers=1)
    >>> import torch
    >>> small(torch.randn(1, 50, 6)).shape
    torch.Size([1, 3, 8])
    """
    check_size("repeats", repeats, 1, "pass how often the latent blocks are applied")
    perceiver = Perceiver(
        width, heads, memory_width=memory_width, queries=queries, latent_layers=latent_layers,
        feed_forward=width if feed_forward is None else feed_forward,
    )  # fmt: skip
    reading = heads[0] if isinstance(heads, tuple) else heads
    block = cast(CrossBlock, perceiver.reading[0])
    block.cross_attention = CrossAttention(
        width, reading, memory_width=memory_width,
        key_width=memory_width // reading if key_width is None else key_width,
    )  # fmt: skip
    perceiver.repeats = repeats
    return perceiver


def q_former(
    width: int = 768,
    heads: int = 12,
    *,
    memory_width: int = 1408,
    queries: int = 32,
    depth: int = 12,
    every: int = 2,
    feed_forward: int = 3072,
    dropout: float = 0.1,
) -> QueryFormer:
    """Build BLIP-2's Q-Former, Hugging Face's `Blip2QFormerModel`: 32 × 768 over 257 × 1408 rows.

    Arguments as in `QueryFormer`.

    >>> import torch
    >>> with torch.device("meta"):
    ...     former = q_former()
    >>> former(torch.ones(1, 257, 1408, device="meta")).shape
    torch.Size([1, 32, 768])
    """
    former = QueryFormer(
        width, heads, queries=queries, memory_width=memory_width, depth=depth, every=every,
        feed_forward=feed_forward, dropout=dropout,
    )  # fmt: skip
    for module in former.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-12
    return former
