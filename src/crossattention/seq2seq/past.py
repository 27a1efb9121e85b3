"""What a prepared decoder has read so far: keys and values of all layers in one tensor, by time.

    rows [t, b, layers, 2, h, d]

One more step writes one slab behind the last, and moving lanes copies what is filled and no more,
for all layers at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Past:
    """Stand behind `length` tokens. Once a longer one was made of it, a past is spent.

    Attributes:
        rows: `[capacity, b, layers, 2, h, d]`, keys and values; `length` steps are filled.
        length: tokens read so far.
        spare: room like that of `rows`, to move lanes into; None where there is none yet.

    >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=5).grown().length
    1
    """

    rows: Tensor
    length: int
    spare: Tensor | None = None

    @classmethod
    def empty(cls, like: Tensor, capacity: int) -> Past:
        """Begin; `like` has the sizes [b, layers, 2, h, d] of one step.

        >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=5).rows.shape[0]
        5
        """
        return cls(like.new_empty(capacity, *like.shape), 0)

    def grown(self) -> Past:
        """Add a step that is still to be written; double the room when it is full.

        >>> Past.empty(torch.zeros(3, 2, 2, 4, 8), capacity=0).grown().rows.shape[0]
        1
        """
        rows, room = self.rows, self.rows.shape[0]
        if self.length < room:
            return Past(rows, self.length + 1, self.spare)
        rows = rows.new_empty(max(1, 2 * room), *rows.shape[1:])
        rows[:room] = self.rows
        return Past(rows, self.length + 1)

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
        shape = (self.rows.shape[0], len(index), *self.rows.shape[2:])
        to = self.spare
        if to is None or to.shape != shape:
            to = self.rows.new_empty(shape)
        torch.index_select(self.rows[: self.length], 1, index, out=to[: self.length])
        return Past(to, self.length, self.rows if self.rows.shape == shape else None)
