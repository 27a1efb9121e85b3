"""The past of a stream that reads itself: keys and values of the rows so far, with room for more.

Spare capacity lets a step write one row instead of copying all.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from crossattention.argument import check_integers, check_range
from crossattention.errors import ContractError, complaint, describe
from crossattention.grown import Grown


@dataclass(frozen=True)
class Cache:
    """Keys and values of the rows so far, [b, h, t, d] each.

    A value: `extended` writes into spare room and returns a longer cache, and the old one stays
    valid.

    >>> import torch
    >>> Cache.empty(torch.zeros(2, 3, 1, 4), capacity=8).length
    0
    """

    keys: Grown
    values: Grown

    @property
    def length(self) -> int:
        """How many rows there are so far."""
        return self.keys.length

    @classmethod
    def empty(cls, like: Tensor, capacity: int) -> Cache:
        """Make room for `capacity` rows of the heads, width, dtype and device of [b, h, t, d].

        >>> import torch
        >>> Cache.empty(torch.zeros(2, 3, 1, 4), capacity=8).keys.storage.shape
        torch.Size([2, 3, 8, 4])
        """
        b, h, _, d = like.shape
        room = (like.new_zeros(b, h, capacity, d) for _ in range(2))
        return cls(*(Grown(each, axis=2, length=0) for each in room))

    def extended(self, key: Tensor, value: Tensor) -> Cache:
        """Write rows [b, h, t, d] behind the last; double the room when it is full.

        >>> import torch
        >>> rows = torch.ones(2, 3, 5, 4)
        >>> Cache.empty(rows, capacity=2).extended(rows, rows).keys.rows.shape
        torch.Size([2, 3, 5, 4])
        """
        there = self.keys.storage
        (b, h, _, d), (have_b, have_h, _, have_d) = there.shape, key.shape
        if (b, h, d) != (have_b, have_h, have_d) or there.device != key.device:
            want = f"of {have_b} sequences, {have_h} heads of width {have_d} on {key.device}"
            given, do = describe(there), "take it from `start`, and select with the beams"
            raise ContractError(complaint("cache", want, given, do))
        return Cache(self.keys.extended(key), self.values.extended(value))

    def select(self, index: Tensor) -> Cache:
        """Keep the sequences named by `index` [b'], in its order: how the past follows beams.

        >>> import torch
        >>> Cache.empty(torch.zeros(2, 3, 1, 4), 8).select(torch.tensor([1, 1, 0])).keys.rows.shape
        torch.Size([3, 3, 0, 4])
        """
        do = "pass the place of each sequence that is kept"
        kept = check_integers("index", index, "integers [b']", do)
        sequences = self.keys.storage.shape[0]
        check_range("index", kept, sequences, f"between 0 and {sequences - 1}", do)
        return Cache(self.keys.selected(kept), self.values.selected(kept))
