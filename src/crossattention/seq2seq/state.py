"""Where a decoder stands: the self-attention cache of each layer, and how many tokens it has read.

A frozen value beside the `Memory`, which never changes while it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from crossattention.nn.self_attention import Cache


@dataclass(frozen=True)
class State:
    """Hold the past of a batch of target sequences.

    Attributes:
        caches: one for each decoder layer.
        length: tokens read so far.

    >>> State(caches=(), length=0).length
    0
    """

    caches: tuple[Cache, ...]
    length: int

    def select(self, index: Tensor) -> State:
        """Keep the sequences named by `index` [b'], in its order: how the past follows beams.

        >>> State(caches=(), length=3).select(None).length
        3
        """
        return replace(self, caches=tuple(cache.select(index) for cache in self.caches))
