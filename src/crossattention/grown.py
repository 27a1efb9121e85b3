"""A tensor that grows along one axis: its rows so far, with room for more behind them.

Spare room lets an appended row be written instead of all being copied. It is a value: appending
gives a longer one over the same storage, and the shorter one stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Grown:
    """Rows along `axis` of a tensor, of which the first `length` are filled.

    Attributes:
        storage: the rows and the room behind them.
        axis, length: along which axis there are how many rows.
        written: how many rows of the storage are taken, shared by all values over it: one that is
            extended a second time finds its room taken and copies first. (A compiled graph does
            not look: there, extend each value once.)
        owned: whether the storage is this value's to write into; False: it is another's.

    >>> Grown.of(torch.zeros(2, 3, 4), axis=1).extended(torch.ones(2, 2, 4)).rows.shape
    torch.Size([2, 5, 4])
    """

    storage: Tensor
    axis: int
    length: int
    written: list[int] = field(default_factory=lambda: [0])
    owned: bool = True

    @classmethod
    def of(cls, rows: Tensor, axis: int) -> Grown:
        """Take rows as they are; they stay another's, and are copied before they are written to.

        >>> Grown.of(torch.zeros(2, 3, 4), axis=1).length
        3
        """
        return cls(rows, axis, rows.shape[axis], [rows.shape[axis]], owned=False)

    @property
    def rows(self) -> Tensor:
        """The rows that are filled: a view.

        >>> Grown(torch.zeros(2, 8), axis=1, length=3).rows.shape
        torch.Size([2, 3])
        """
        if self.length == self.storage.shape[self.axis]:
            return self.storage
        return self.storage.narrow(self.axis, 0, self.length)

    def extended(self, more: Tensor) -> Grown:
        """Put rows behind the last; double the room when it is full.

        Where gradients are on, everything is copied: what was read from the shorter value may be
        waiting for its backward pass, and the rows themselves may carry a graph.

        >>> short = Grown(torch.zeros(1, 4), axis=1, length=2, written=[2])
        >>> with torch.no_grad():
        ...     long = short.extended(torch.ones(1, 1))
        >>> long.storage is short.storage, long.rows.tolist()
        (True, [[0.0, 0.0, 1.0]])
        """
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            both = torch.cat((self.rows, more.to(self.storage.dtype)), self.axis)
            return Grown.of(both, self.axis)
        end, storage, written = self.length + more.shape[self.axis], self.storage, self.written
        room = storage.shape[self.axis]
        if end > room:
            storage, written = self._copied(max(end, 2 * room)), [end]
        elif self._taken():
            storage, written = self._copied(room), [end]
        written[0] = end
        # Not a change of what was read before, so no version is raised: it may await its backward.
        free = storage if torch.compiler.is_compiling() else storage.data
        free.narrow(self.axis, self.length, more.shape[self.axis]).copy_(more)
        return Grown(storage, self.axis, end, written)

    def cut(self, length: int) -> Grown:
        """Give up the rows from `length` on. They stay where they are: others may hold them.

        >>> Grown.of(torch.zeros(1, 4), axis=1).cut(2).rows.shape
        torch.Size([1, 2])
        """
        if length >= self.length:
            return self
        return Grown.of(self.storage.narrow(self.axis, 0, length), self.axis)

    def selected(self, index: Tensor) -> Grown:
        """Take some places of the first axis, with the room behind their rows.

        >>> Grown(torch.zeros(2, 8), axis=1, length=3).selected(torch.tensor([1])).storage.shape
        torch.Size([1, 8])
        """
        return Grown(self.storage[index], self.axis, self.length, [self.length])

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Grown:
        """Change the filled rows; the result has storage of its own.

        >>> Grown(torch.zeros(2, 8), axis=1, length=3).mapped(lambda x: x + 1).rows.sum().item()
        6.0
        """
        return Grown.of(change(self.rows), self.axis)

    def _taken(self) -> bool:
        """Whether the room behind the rows may not be written to."""
        if torch.compiler.is_compiling():
            return False
        foreign = self.storage.is_inference() and not torch.is_inference_mode_enabled()
        return not self.owned or foreign or self.written[0] != self.length

    def _copied(self, room: int) -> Tensor:
        shape = list(self.storage.shape)
        shape[self.axis] = room
        made = self.storage.new_zeros(shape)
        made.narrow(self.axis, 0, self.length).copy_(self.rows)
        return made
