"""What a prepared decoder has read so far: keys and values of all layers in one tensor, by time.

    rows [t, b, layers, 2, h, d]

One more step writes one slab behind the last. Lanes that follow their beams have most of their past
in common: what a lane holds already is known by whoever wrote it, and only the rest is moved, for
all layers at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Past:
    """Stand behind `length` tokens. Once a longer or a moved one was made of it, a past is spent.

    Attributes:
        rows: `[capacity, b, layers, 2, h, d]`, keys and values; `length` steps are filled.
        writers: int64 `[capacity, b]`, the lane that wrote what a lane holds of a step. Lanes that
            name the same one hold the same numbers.
        length: tokens read so far.

    >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=5).grown().length
    1
    """

    rows: Tensor
    writers: Tensor
    length: int

    @classmethod
    def empty(cls, like: Tensor, capacity: int) -> Past:
        """Begin; `like` has the sizes [b, layers, 2, h, d] of one step.

        >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=5).rows.shape[0]
        5
        """
        rows = like.new_empty(capacity, *like.shape)
        return cls(rows, _themselves(rows), 0)

    def grown(self) -> Past:
        """Add a step that is still to be written; double the room when it is full.

        >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=0).grown().rows.shape[0]
        1
        """
        rows, writers, room = self.rows, self.writers, self.rows.shape[0]
        if self.length == room:
            rows = rows.new_empty(max(1, 2 * room), *rows.shape[1:])
            rows[:room] = self.rows
            writers = _themselves(rows)
            writers[:room] = self.writers
        return Past(rows, writers, self.length + 1)

    def write(self, layer: int, both: Tensor) -> tuple[Tensor, Tensor]:
        """Write the last step of a layer, [b, 2, h, d]; give all its keys and values [b, h, t, d].

        >>> past = Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=5).grown()
        >>> past.write(1, torch.ones(3, 2, 4, 8))[0].shape
        torch.Size([3, 4, 1, 8])
        """
        rows = self.rows[: self.length, :, layer]  # [t, b, 2, h, d]
        rows[-1] = both
        key, value = rows.permute(2, 1, 3, 0, 4).unbind()  # -> 2 of [b, h, t, d]
        return key, value

    def select(self, index: Tensor) -> Past:
        """Keep the sequences named by `index` [b'], in its order: how the past follows beams.

        >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=5).select(torch.tensor([1])).rows.shape
        torch.Size([5, 1, 2, 2, 4, 8])
        """
        capacity, b = self.writers.shape
        held = self.writers[: self.length]
        wanted = held[:, index]
        if len(index) == b:
            moved = (wanted != held).flatten().nonzero()[:, 0]  # places of [t, b]
            lane = moved % b
            slabs = self.rows.view(capacity * b, -1)
            slabs.index_copy_(0, moved, slabs.index_select(0, moved - lane + index[lane]))
            held.copy_(wanted)
            return self
        rows = self.rows.new_empty(capacity, len(index), *self.rows.shape[2:])
        writers = _themselves(rows)
        torch.index_select(self.rows[: self.length], 1, index, out=rows[: self.length])
        writers[: self.length] = wanted
        return Past(rows, writers, self.length)


def _themselves(rows: Tensor) -> Tensor:
    """Let each lane be the writer of what it will hold: rows [t, b, ...] -> [t, b]."""
    capacity, b = rows.shape[:2]
    return torch.arange(b, device=rows.device).repeat(capacity, 1)
