"""A memory: what one sequence left to be read, projected once and shared by all who read it.

A frozen value for a whole source batch: what is held (rows, their lengths, and the keys and values
of each layer that has projected them), and which memory each query sequence reads (`owner`). One
`select` or `shared_by` therefore moves every layer at once, and no step ever gathers keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed

import torch
from torch import Tensor

from crossattention.content import Content, check_target
from crossattention.errors import ContractError, complaint
from crossattention.holding import Holding
from crossattention.owner import Owner


@dataclass(frozen=True)
class Memory:
    """Hold a source batch for reading. Made by `layer.remember` or `decoder.remember`.

    Attributes:
        holding: the rows, how many are real, and what each layer keeps of them.
        owner: which memory each query sequence reads; None: sequence i reads memory i.

    >>> memory = Memory.of(torch.ones(2, 3, 4), lengths=[3, 1])
    >>> memory.shared_by(5).sequences, memory.rows[1, 2].tolist()
    (10, [0.0, 0.0, 0.0, 0.0])
    """

    holding: Holding
    owner: Owner | None = None

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
        if not isinstance(rows, Memory):
            return cls(Holding.of(rows, lengths, value_rows))
        if lengths is not None or value_rows is not None:
            given, do = "some beside a memory", "the memory has its own"
            raise ContractError(complaint("lengths` and `value_rows", "None", given, do))
        return rows

    @property
    def size(self) -> tuple[int, int]:
        """(m, s), the memories and the rows of each, padding included."""
        return self.holding.extent.size

    @property
    def lengths(self) -> Tensor | None:
        """Real rows of each memory, int64 `[m]`; None if all are real."""
        return self.holding.extent.lengths

    @property
    def rows(self) -> Tensor | None:
        """The rows, `[m, s, c]`, zero beyond `lengths`; None once no layer needs them."""
        return None if self.holding.source is None else self.holding.source.rows

    @property
    def contents(self) -> Mapping[int, Content]:
        """What each layer keeps, by the layer's own number."""
        return self.holding.contents

    @property
    def sequences(self) -> int:
        """How many query sequences read, b."""
        return self.size[0] if self.owner is None else self.owner.index.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes kept, counted over distinct storage."""
        return self.holding.nbytes

    def written(self, layer: int, content: Content) -> Memory:
        """Add what a layer keeps.

        >>> list(Memory.of(torch.ones(2, 3, 4)).written(7, Content(stamp=())).contents)
        [7]
        """
        return changed(self, holding=self.holding.written(layer, content))

    def without_rows(self) -> Memory:
        """Forget the raw rows, once every layer that reads has projected them.

        >>> Memory.of(torch.ones(2, 3, 4)).without_rows().rows is None
        True
        """
        return changed(self, holding=changed(self.holding, source=None))

    def append(
        self,
        rows: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        value_rows: Tensor | None = None,
    ) -> Memory:
        """Put new rows behind each memory's last real one: a stream that is still being heard.

        This memory stays valid, and shares storage with the longer one where gradients are off and
        all its rows are real. A layer that keeps keys and values projects what is new by
        `remember(memory)`; one that reads the rows themselves needs nothing.

        Args:
            rows: `[m, s', c]`, in the dtype and place of those that are there.
            lengths, value_rows: of the new rows, as in `of`.

        >>> memory = Memory.of(torch.ones(2, 3, 4))
        >>> memory.append(torch.ones(2, 2, 4)).size, memory.size
        ((2, 5), (2, 3))
        """
        return changed(self, holding=self.holding.appended(rows, lengths, value_rows))

    def replace(
        self,
        from_row: int,
        rows: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        value_rows: Tensor | None = None,
    ) -> Memory:
        """Put new rows in place of those from `from_row` on: what was heard is corrected.

        From now on every memory that holds the old rows is refused. Arguments as in `append`; no
        memory may be shorter than `from_row`.

        >>> memory = Memory.of(torch.ones(2, 3, 4))
        >>> memory.replace(2, torch.zeros(2, 2, 4)).size
        (2, 4)
        """
        return changed(self, holding=self.holding.replaced(from_row, rows, lengths, value_rows))

    def shared_by(self, count: int) -> Memory:
        """Let `count` query sequences in a row read where one did: beams, branches, prompts.

        >>> Memory.of(torch.ones(2, 3, 4)).shared_by(2).owner.index.tolist()
        [0, 0, 1, 1]
        """
        return changed(self, owner=self._readers().shared_by(count))

    def select(self, index: Tensor) -> Memory:
        """Keep the query sequences named by `index` [b'], in its order; no memory moves.

        >>> memory = Memory.of(torch.ones(2, 3, 4)).shared_by(2)
        >>> memory.select(torch.tensor([3, 3])).owner.index.tolist()
        [1, 1]
        """
        return changed(self, owner=self._readers().select(index))

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
        kept = self.holding.mapped(len(used), lambda tensor: tensor[used.to(tensor.device)])
        return Memory(kept, Owner.of(index, len(used)))

    def to(self, target: torch.device | str | torch.dtype) -> Memory:
        """Move to a device, or keep rows, keys and values in another dtype.

        >>> Memory.of(torch.ones(2, 3, 4)).to(torch.float16).rows.dtype
        torch.float16
        """
        place, m = check_target(target), self.size[0]
        if isinstance(place, torch.dtype):
            kept = self.holding.mapped(m, lambda x: x.to(place) if x.is_floating_point() else x)
            return Memory(kept, self.owner)
        owner = None if self.owner is None else self.owner.to(place)
        return Memory(self.holding.mapped(m, lambda tensor: tensor.to(place)), owner)

    def _readers(self) -> Owner:
        device = next((tensor.device for tensor in self.holding.tensors()), None)
        return self.owner or Owner.shared(self.size[0], 1, device)
