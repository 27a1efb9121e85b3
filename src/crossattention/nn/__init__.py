"""Layers with parameters."""

from crossattention.nn.block import CrossBlock, DecoderBlock, EncoderBlock, FeedForward
from crossattention.nn.cache import Cache
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.from_torch import from_torch
from crossattention.nn.null_row import NullRow
from crossattention.nn.self_attention import SelfAttention

__all__ = [
    "Cache",
    "CrossAttention",
    "CrossBlock",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "NullRow",
    "SelfAttention",
    "from_torch",
]
