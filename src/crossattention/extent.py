"""How many rows each memory has, and which of them are real.

row s of memory m may be read  <=>  s < lengths[m]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.mask import check_lengths


@dataclass(frozen=True)
class Extent:
    """The memories and their rows, padding included, and where padding begins.

    Attributes:
        size: (m, s).
        lengths: int64 `[m]`, real rows of each memory; None if all are real.
        readable: bool `[m, s]`, True for real rows; None if all are.
        may_be_empty: whether a memory without any real row is possible. Known on the host, so that
            no read has to wait for a GPU.

    >>> Extent.of(2, 3, [3, 1], torch.device("cpu")).readable.tolist()
    [[True, True, True], [True, False, False]]
    """

    size: tuple[int, int]
    lengths: Tensor | None = None
    readable: Tensor | None = None
    may_be_empty: bool = False

    @classmethod
    def of(
        cls, memories: int, rows: int, lengths: Tensor | Sequence[int] | None, device: torch.device
    ) -> Extent:
        """Check lengths, and work out what they say.

        Raises:
            ContractError: another count than m; below 0 or above s.

        >>> Extent.of(2, 0, None, torch.device("cpu")).may_be_empty
        True
        """
        if lengths is None:
            return cls((memories, rows), may_be_empty=rows == 0)
        checked = check_lengths(lengths, memories, rows).to(device, copy=True)
        readable = torch.arange(rows, device=device) < checked[:, None]  # [m] -> [m, s]
        may_be_empty = torch.compiler.is_compiling() or not memories or int(checked.min()) == 0
        return cls((memories, rows), checked, readable, may_be_empty)

    def cleared(self, rows: Tensor) -> Tensor:
        """Zero the rows [m, s, c] that are not real: they may hold anything.

        >>> extent = Extent.of(1, 3, [1], torch.device("cpu"))
        >>> extent.cleared(torch.full((1, 3, 1), torch.nan)).isnan().sum().item()
        1
        """
        return rows if self.readable is None else rows.masked_fill(~self.readable[..., None], 0)

    @property
    def least(self) -> int:
        """Real rows of the shortest memory.

        >>> Extent.of(2, 3, [3, 1], torch.device("cpu")).least
        1
        """
        if self.lengths is None or not self.size[0]:
            return self.size[1]
        return 0 if torch.compiler.is_compiling() else int(self.lengths.min())

    def extended(self, new: Extent) -> Extent:
        """Put the real rows of `new` behind one's own.

        >>> both = Extent.of(2, 3, [3, 1], torch.device("cpu"))
        >>> both.extended(Extent.of(2, 2, [1, 2], torch.device("cpu"))).lengths.tolist()
        [4, 3]
        """
        m, s = self.size
        more = new.size[1]
        known = new.lengths if self.lengths is None else self.lengths
        if known is None:
            return Extent((m, s + more), may_be_empty=s + more == 0)
        total = known.new_zeros(m)
        for rows, lengths in ((s, self.lengths), (more, new.lengths)):
            total = total + (rows if lengths is None else lengths)
        return Extent.of(m, s + more, total, known.device)

    def behind(self, rows: Tensor, more: Tensor) -> Tensor:
        """Put each memory's new rows [m, s', c] behind its last real one: [m, s + s', c].

        >>> extent = Extent.of(2, 2, [2, 1], torch.device("cpu"))
        >>> rows = extent.cleared(torch.ones(2, 2, 1))
        >>> extent.behind(rows, torch.full((2, 1, 1), 5.0)).squeeze(-1).tolist()
        [[1.0, 1.0, 5.0], [1.0, 5.0, 0.0]]
        """
        wide = torch.cat((rows, torch.zeros_like(more)), 1)  # [m, s, c] -> [m, s + s', c]
        if self.lengths is None:
            place = torch.arange(more.shape[1], device=rows.device) + rows.shape[1]
        else:
            place = self.lengths[:, None] + torch.arange(more.shape[1], device=rows.device)
        return wide.scatter(1, place.expand(more.shape[:2])[..., None].expand_as(more), more)

    def mapped(self, memories: int, change: Callable[[Tensor], Tensor]) -> Extent:
        """Change what has a memory axis; there are `memories` afterwards.

        >>> Extent.of(2, 3, [3, 1], torch.device("cpu")).mapped(1, lambda x: x[:1]).lengths.tolist()
        [3]
        """
        if self.lengths is None or self.readable is None:
            return Extent((memories, self.size[1]), None, None, self.may_be_empty)
        lengths, readable = change(self.lengths), change(self.readable)
        return Extent((memories, self.size[1]), lengths, readable, self.may_be_empty)
