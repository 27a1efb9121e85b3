"""A memory: what one sequence left to be read, projected once and shared by all who read it.

A frozen value for a whole source batch. It holds the rows themselves (the raw form), or the keys
and values of each layer that has projected them (the projected form), together with how many rows
are real (`lengths`) and which memory each query sequence reads (`owner`). One `select` or
`shared_by` therefore moves every layer at once, and no step ever gathers keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from crossattention.content import Content, Stamp, check_rows, check_target, kept_rows, versions_of
from crossattention.errors import ContractError, complaint
from crossattention.mask import check_lengths
from crossattention.owner import Owner


@dataclass(frozen=True)
class Memory:
    """Hold a source batch for reading. Made by `layer.remember` or `decoder.remember`.

    Attributes:
        size: (m, s), the memories and the rows of each, padding included.
        lengths: int64 `[m]`, real rows of each memory; None if all are real.
        owner: which memory each query sequence reads; None: sequence i reads memory i.
        rows, value_rows: `[m, s, c]`, zero beyond `lengths`; None once no layer needs them. Where
            there are no lengths they are the caller's own: written to since, they are refused.
        contents: what each layer keeps, by the layer's own number.

    >>> memory = Memory.of(torch.ones(2, 3, 4), lengths=[3, 1])
    >>> memory.shared_by(5).sequences, memory.rows[1, 2].tolist()
    (10, [0.0, 0.0, 0.0, 0.0])
    """

    size: tuple[int, int]
    lengths: Tensor | None = None
    owner: Owner | None = None
    rows: Tensor | None = None
    value_rows: Tensor | None = None
    contents: Mapping[int, Content] = field(default_factory=dict)
    readable: Tensor | None = None
    may_be_empty: bool = False
    versions: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        value_rows: Tensor | None = None,
    ) -> Memory:
        """Check rows and lengths, and clear what lies beyond them.

        Args:
            rows: float `[m, s, c]`; a Memory is returned as it is.
            lengths: integers `[m]`, real rows of each memory; None: all are real.
            value_rows: float `[m, s, c']`, the rows that values come from, if they are others.
        Raises:
            ContractError: ranks, sizes, dtypes or devices that do not agree; a length above s.

        >>> Memory.of(torch.ones(2, 3, 4)).sequences
        2
        """
        if isinstance(rows, Memory):
            if lengths is not None or value_rows is not None:
                given, do = "some beside a memory", "the memory has its own"
                raise ContractError(complaint("lengths` and `value_rows", "None", given, do))
            return rows
        check_rows(rows, value_rows)
        m, s = rows.shape[:2]
        if lengths is None:
            versions = versions_of(rows, value_rows)
            return cls((m, s), None, None, rows, value_rows, {}, None, s == 0, versions)
        checked = check_lengths(lengths, m, s).to(rows.device, copy=True)
        readable = torch.arange(s, device=rows.device) < checked[:, None]  # [m] -> [m, s]
        beyond = ~readable[..., None]  # [m, s] -> [m, s, 1]
        rows = rows.masked_fill(beyond, 0)
        value_rows = None if value_rows is None else value_rows.masked_fill(beyond, 0)
        may_be_empty = torch.compiler.is_compiling() or not m or int(checked.min()) == 0
        return cls((m, s), checked, None, rows, value_rows, {}, readable, may_be_empty)

    @property
    def sequences(self) -> int:
        """How many query sequences read (b).

        >>> Memory.of(torch.ones(2, 3, 4)).shared_by(3).sequences
        6
        """
        return self.size[0] if self.owner is None else self.owner.index.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes kept, counted over distinct storage.

        >>> Memory.of(torch.ones(2, 3, 4)).shared_by(5).nbytes
        96
        """
        storages = [tensor.untyped_storage() for tensor in self._tensors()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def content(self, layer: int, stamp: Stamp) -> Content:
        """Find what a layer wrote; raise if it wrote nothing, or has changed since.

        >>> memory = Memory.of(torch.ones(2, 3, 4)).written(7, Content(stamp=()))
        >>> memory.content(7, ()).key is None
        True
        """
        return Content.find(self.contents, layer, stamp)

    def written(self, layer: int, content: Content) -> Memory:
        """Add what a layer keeps.

        >>> list(Memory.of(torch.ones(2, 3, 4)).written(7, Content(stamp=())).contents)
        [7]
        """
        return replace(self, contents={**self.contents, layer: content})

    def without_rows(self) -> Memory:
        """Forget the raw rows, once every layer that reads has projected them.

        >>> Memory.of(torch.ones(2, 3, 4)).without_rows().rows is None
        True
        """
        return replace(self, rows=None, value_rows=None)

    def shared_by(self, count: int) -> Memory:
        """Let `count` query sequences in a row read where one did: beams, branches, prompts.

        >>> Memory.of(torch.ones(2, 3, 4)).shared_by(2).owner.index.tolist()
        [0, 0, 1, 1]
        """
        return replace(self, owner=self._readers().shared_by(count))

    def select(self, index: Tensor) -> Memory:
        """Keep the query sequences named by `index` [b'], in its order; no memory moves.

        >>> memory = Memory.of(torch.ones(2, 3, 4)).shared_by(2)
        >>> memory.select(torch.tensor([3, 3])).owner.index.tolist()
        [1, 1]
        """
        return replace(self, owner=self._readers().select(index))

    def compact(self) -> Memory:
        """Drop the memories that no query sequence reads.

        >>> memory = Memory.of(torch.ones(3, 2, 4)).select(torch.tensor([2, 2]))
        >>> memory.compact().size
        (1, 2)
        """
        if self.owner is None:
            return self
        used, index = torch.unique(self.owner.index, return_inverse=True)
        if len(used) == self.size[0]:
            return self
        kept = self._mapped(lambda tensor: tensor[used.to(tensor.device)])
        return replace(kept, size=(len(used), self.size[1]), owner=Owner.of(index, len(used)))

    def to(self, target: torch.device | str | torch.dtype) -> Memory:
        """Move to a device, or keep rows, keys and values in another dtype.

        >>> Memory.of(torch.ones(2, 3, 4)).to(torch.float16).rows.dtype
        torch.float16
        """
        place = check_target(target)
        if isinstance(place, torch.dtype):
            return self._mapped(lambda x: x.to(place) if x.is_floating_point() else x)
        owner = None if self.owner is None else self.owner.to(place)
        return replace(self._mapped(lambda tensor: tensor.to(place)), owner=owner)

    def _tensors(self) -> list[Tensor]:
        kept = [x for content in self.contents.values() for x in (content.key, content.value)]
        kept += [self.rows, self.value_rows, self.lengths, self.readable]
        return [tensor for tensor in kept if tensor is not None]

    def _readers(self) -> Owner:
        device = next((tensor.device for tensor in self._tensors()), None)
        return self.owner or Owner.shared(self.size[0], 1, device)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Memory:
        """Change every tensor that has a memory axis."""
        if self.rows is not None:
            kept_rows(self.rows, self.value_rows, self.versions)
        given = self.lengths, self.readable, self.rows, self.value_rows
        lengths, readable, rows, others = (None if x is None else change(x) for x in given)
        return Memory(
            self.size, lengths, self.owner, rows, others,
            {layer: content.mapped(change) for layer, content in self.contents.items()},
            readable, self.may_be_empty, versions_of(rows, others),
        )  # fmt: skip

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.__dict__["versions"] = versions_of(self.rows, self.value_rows)  # copies count anew
