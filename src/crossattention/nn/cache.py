"""The past of a stream that reads itself: keys and values of the rows so far, with room for more.

Spare capacity lets a step write one row instead of copying all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from crossattention.argument import check_integers, check_range
from crossattention.errors import ContractError, complaint, describe


@dataclass(frozen=True)
class Cache:
    """Keys and values of the rows so far: [b, h, capacity, d] each, of which `length` are filled.

    A value: `extended` writes into spare rows and returns a longer cache, and the old one stays
    valid. `written` is shared by all caches over one storage; a cache that is extended a second
    time finds its spare rows taken and copies first. (A compiled graph does not look: there,
    extend each cache once.)

    >>> Cache.empty(torch.zeros(2, 3, 1, 4), capacity=8).length
    0
    """

    key: Tensor
    value: Tensor
    length: int
    written: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def empty(cls, like: Tensor, capacity: int) -> Cache:
        """Make room for `capacity` rows of the heads, width, dtype and device of [b, h, t, d].

        >>> Cache.empty(torch.zeros(2, 3, 1, 4), capacity=8).key.shape
        torch.Size([2, 3, 8, 4])
        """
        b, h, _, d = like.shape
        return cls(like.new_zeros(b, h, capacity, d), like.new_zeros(b, h, capacity, d), 0)

    def extended(self, key: Tensor, value: Tensor) -> Cache:
        """Write rows [b, h, t, d] behind the last; double the capacity when it is full.

        >>> rows = torch.ones(2, 3, 5, 4)
        >>> cache = Cache.empty(rows, capacity=2).extended(rows, rows)
        >>> cache.length, cache.key.shape[2] >= 5
        (5, True)
        """
        (b, h, _, d), (have_b, have_h, _, have_d) = self.key.shape, key.shape
        if (b, h, d) != (have_b, have_h, have_d) or self.key.device != key.device:
            want = f"of {have_b} sequences, {have_h} heads of width {have_d} on {key.device}"
            given, do = describe(self.key), "take it from `start`, and select with the beams"
            raise ContractError(complaint("cache", want, given, do))
        end = self.length + key.shape[2]
        kept_key, kept_value, written = self.key, self.value, self.written
        if end > kept_key.shape[2]:
            spare = max(end, 2 * kept_key.shape[2]) - kept_key.shape[2]
            kept_key = nn.functional.pad(kept_key, (0, 0, 0, spare))  # [b, h, capacity, d] grows
            kept_value = nn.functional.pad(kept_value, (0, 0, 0, spare))
            written = [end]
        elif not torch.compiler.is_compiling() and written[0] != self.length:
            kept_key, kept_value, written = kept_key.clone(), kept_value.clone(), [end]
        written[0] = end
        kept_key[:, :, self.length : end] = key
        kept_value[:, :, self.length : end] = value
        return Cache(kept_key, kept_value, end, written)

    def select(self, index: Tensor) -> Cache:
        """Keep the sequences named by `index` [b'], in its order: how the past follows beams.

        >>> Cache.empty(torch.zeros(2, 3, 1, 4), 8).select(torch.tensor([1, 1, 0])).key.shape[0]
        3
        """
        do = "pass the place of each sequence that is kept"
        kept = check_integers("index", index, "integers [b']", do)
        sequences = self.key.shape[0]
        check_range("index", kept, sequences, f"between 0 and {sequences - 1}", do)
        return Cache(self.key[kept], self.value[kept], self.length, [self.length])
