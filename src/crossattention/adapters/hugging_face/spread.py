"""A shared cache made one of transformers' own again: projected, a copy for each hypothesis.

Whisper's own `generate` takes the cache it returns apart by hypotheses; a memory that is shared, or
kept as raw rows, cannot be.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import DynamicCache, EncoderDecoderCache

from crossattention.adapters.hugging_face.cache import SharedCache, sequences
from crossattention.adapters.hugging_face.modules import Found
from crossattention.adapters.hugging_face.remember import project
from crossattention.adapters.hugging_face.remembered import Raw, shared


@torch.no_grad()
def spread(cache: SharedCache, model: nn.Module, found: Found) -> EncoderDecoderCache:
    """Give the cache that the stock model would have returned."""
    own = cache.self_attention_cache
    content = [
        _content(layer, module, found, sequences(own))
        for layer, module in zip(
            cache.cross_attention_cache.layers, found.modules(model), strict=True
        )
    ]
    return EncoderDecoderCache(own, DynamicCache(content))


def _content(layer: object, module: nn.Module, found: Found, b: int) -> tuple[Tensor, Tensor]:
    """Project what is raw, and repeat: [m, g, s, ·] -> [b, g, s, ·]."""
    key: Tensor = layer.keys  # type: ignore[attr-defined]
    pair = (key, layer.values)  # type: ignore[attr-defined]
    if isinstance(shared(key), Raw):
        pair = project(module, found, key[:, 0])
    repeats = b // key.shape[0]
    return pair[0].repeat_interleave(repeats, 0), pair[1].repeat_interleave(repeats, 0)
