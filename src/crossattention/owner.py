"""Which memory each query sequence reads, and how query sequences are grouped by memory.

Query sequences that read one memory are folded beside each other on the query axis, so that a
kernel meets each memory once and no key is ever copied for a beam. Equal counts in order
(0, 0, 1, 1) fold as a view; anything else gathers and pads *queries*, never keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.argument import check_integers, check_range, check_size


@dataclass(frozen=True)
class Owner:
    """Name the memory that each query sequence reads.

    Attributes:
        index: int64 `[b]`, the memory of each query sequence.
        memories: m.
        per_memory: n, the largest number of query sequences that read one memory.
        slots: int64 `[m, n]`, the query sequences of each memory, repeated where there are fewer
            than n; None when `index` is 0, 0, 1, 1, … and folding is a view.
        place: int64 `[b]`, where each query sequence went among m·n; None with `slots`.
        unread: bool `[m]`, the memories that no query sequence reads; None if there are none.

    >>> Owner.of([0, 0, 2], memories=3).per_memory
    2
    """

    index: Tensor
    memories: int
    per_memory: int
    slots: Tensor | None = None
    place: Tensor | None = None
    unread: Tensor | None = None

    @classmethod
    def of(cls, index: Tensor | Sequence[int], memories: int) -> Owner:
        """Check an index and group it.

        Args:
            index: integers `[b]`, each from 0 to m - 1.
            memories: m.
        Raises:
            ContractError: not integers of rank 1, or a memory that does not exist.

        >>> Owner.of([1, 0, 1], memories=2).slots.tolist()
        [[1, 1], [0, 2]]
        """
        check_size("memories", memories, 0, "count the memories")
        do = "pass the memory of each query sequence"
        given = check_integers("owner", index, "integers [b], with their values", do)
        want = f"between 0 and {memories - 1}, as there are {memories} memories"
        do = "an owner names a memory by its position"
        check_range("owner", given, memories, want, do)
        return cls._grouped(given.clone(), memories)  # the caller may fill its tensor anew

    @classmethod
    def shared(cls, memories: int, count: int, device: torch.device | None = None) -> Owner:
        """Let `count` query sequences in a row read each memory: 0, 0, 1, 1, ….

        >>> Owner.shared(memories=2, count=3).index.tolist()
        [0, 0, 0, 1, 1, 1]
        """
        check_size("memories", memories, 0, "count the memories")
        check_size("count", count, 1, "each memory is read by one query sequence or more")
        each = torch.arange(memories, device=device).repeat_interleave(count)
        return cls(each, memories, count)

    def shared_by(self, count: int) -> Owner:
        """Put `count` query sequences in a row in place of each.

        >>> Owner.of([0, 0, 2], memories=3).shared_by(2).index.tolist()
        [0, 0, 0, 0, 2, 2]
        """
        check_size("count", count, 1, "each memory is read by one query sequence or more")
        if not self.index.shape[0]:
            return self  # nobody, however often
        if self.slots is None:
            return self.shared(self.memories, self.per_memory * count, self.index.device)
        return self._grouped(self.index.repeat_interleave(count), self.memories)

    def select(self, index: Tensor) -> Owner:
        """Keep the query sequences named by `index` [b'], in its order.

        >>> Owner.shared(memories=2, count=2).select(torch.tensor([3, 0])).index.tolist()
        [1, 0]
        """
        sequences = self.index.shape[0]
        do = "pass the place of each query sequence that is kept"
        given = check_integers("index", index, "integers [b']", do)
        want = f"between 0 and {sequences - 1}, as there are {sequences} query sequences"
        check_range("index", given, sequences, want, do)
        return self._grouped(self.index[given.to(self.index.device)], self.memories)

    def to(self, device: torch.device | str) -> Owner:
        """Move to a device.

        >>> Owner.of([0, 0, 2], memories=3).to("cpu").index.tolist()
        [0, 0, 2]
        """
        slots = None if self.slots is None else self.slots.to(device)
        place = None if self.place is None else self.place.to(device)
        unread = None if self.unread is None else self.unread.to(device)
        return Owner(self.index.to(device), self.memories, self.per_memory, slots, place, unread)

    @classmethod
    def _grouped(cls, index: Tensor, memories: int) -> Owner:
        counts = torch.bincount(index, minlength=memories)
        most = int(counts.max()) if memories else 0
        blocks = torch.arange(memories, device=index.device).repeat_interleave(most)
        if torch.equal(index, blocks):
            return cls(index, memories, most)
        order = torch.argsort(index, stable=True)  # query sequences, memory by memory
        start = counts.cumsum(0) - counts
        rank = torch.empty_like(index)  # position of a query sequence among its memory's
        rank[order] = torch.arange(len(index), device=index.device) - start[index[order]]
        place = index * most + rank
        # A memory with fewer readers repeats one of its own, and a memory that nobody reads any:
        # what they compute is dropped, and their gradients are exact zeros.
        slots = order[start.clamp(max=max(len(order) - 1, 0))]
        slots = slots[:, None].repeat(1, most).flatten()  # [m] -> [m * n]
        slots[place] = torch.arange(len(index), device=index.device)
        unread = counts == 0 if int(counts.min()) == 0 else None
        return cls(index, memories, most, slots.unflatten(0, (memories, most)), place, unread)
