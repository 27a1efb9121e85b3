"""A cache of transformers' own kind whose cross part is filled before the first step and shared.

Hypotheses are reordered among those of one source, so its memory stays where it is: reordering and
repeating touch the self-attention part alone.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import Cache, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from crossattention.adapters.hugging_face.remembered import mark, shared


class SharedLayer(DynamicLayer):
    """One layer's keys and values, `[m, g, s, ·]` for m sources, whatever reads them."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        DynamicLayer.__init__(self)
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Leave the memory where it is."""

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Leave the memory where it is."""

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the memories of these sources."""
        keys: Any = self.keys
        values: Any = self.values
        memory, kept = shared(keys), indices.to(keys.device)
        self.keys, self.values = keys[kept], values[kept]
        if memory is not None:
            mark(self.keys, memory.select(kept))


class SharedCache(EncoderDecoderCache):
    """The self-attention cache that generation made, beside a memory that is shared.

    >>> import torch
    >>> layer = SharedLayer(torch.ones(2, 1, 5, 3), torch.ones(2, 1, 5, 3))
    >>> cache = SharedCache(DynamicCache(), [layer])
    >>> cache.reorder_cache(torch.tensor([1, 1, 0, 0]))
    >>> cache.is_updated, cache.cross_attention_cache.layers[0].keys.shape[0]
    ({0: True}, 2)
    """

    def __init__(self, own: Cache, layers: list[SharedLayer]) -> None:
        cross = DynamicCache()
        cross.layers = [*layers]
        cross.layer_class_to_replicate = None
        super().__init__(own, cross)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these hypotheses, and for each its source, which is no longer shared."""
        count = sequences(self.self_attention_cache)
        layers: Any = self.cross_attention_cache.layers
        self.self_attention_cache.batch_select_indices(indices)
        for layer in layers:
            if count:
                layer.batch_select_indices(indices * layer.keys.shape[0] // count)


def sequences(cache: Cache) -> int:
    """Count the hypotheses of a self-attention cache, 0 before the first step."""
    layers: Any = cache.layers
    return next((layer.keys.shape[0] for layer in layers if layer.is_initialized), 0)
