"""What a memory holds, whoever reads it: rows, what each layer keeps of them, and their history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from crossattention.argument import check_size
from crossattention.content import Content, Stamp
from crossattention.edition import Edition
from crossattention.errors import ContractError, complaint
from crossattention.extent import Extent
from crossattention.source import Source, check_rows


@dataclass(frozen=True)
class Holding:
    """Rows and contents of memories, as long as the extent says.

    Attributes:
        extent: how many rows each memory has, and which are real.
        edition: whether rows have been replaced since.
        source: the rows themselves; None once no layer needs them.
        contents: what each layer keeps, by the layer's own number.

    >>> import torch
    >>> Holding.of(torch.ones(2, 3, 4), [3, 1], None).extent.size
    (2, 3)
    """

    extent: Extent
    edition: Edition
    source: Source | None = None
    contents: Mapping[int, Content] = field(default_factory=dict)

    @classmethod
    def of(
        cls, rows: Tensor, lengths: Tensor | Sequence[int] | None, value_rows: Tensor | None
    ) -> Holding:
        """Check rows and lengths, and clear what lies beyond them.

        >>> import torch
        >>> Holding.of(torch.ones(2, 3, 4), None, None).source.rows.shape
        torch.Size([2, 3, 4])
        """
        check_rows(rows, value_rows)
        m, s = rows.shape[:2]
        extent = Extent.of(m, s, lengths, rows.device)
        others = None if value_rows is None else extent.cleared(value_rows)
        return cls(extent, Edition.of(s), Source.of(extent.cleared(rows), others))

    def content(self, layer: int, stamp: Stamp) -> Content:
        """Find what a layer wrote; raise if it is missing, stale, outdated or behind.

        >>> import torch
        >>> Holding.of(torch.ones(2, 3, 4), None, None).written(7, Content(())).content(7, ()).key
        """
        self.edition.check()
        return Content.find(self.contents, layer, stamp, self.extent.size[1])

    def written(self, layer: int, content: Content) -> Holding:
        """Add what a layer keeps.

        >>> import torch
        >>> list(Holding.of(torch.ones(2, 3, 4), None, None).written(7, Content(())).contents)
        [7]
        """
        return replace(self, contents={**self.contents, layer: content})

    def rows(self) -> Source:
        """Give the rows themselves, or raise: they were given up, or replaced.

        >>> import torch
        >>> Holding.of(torch.ones(2, 3, 4), None, None).rows().value_rows is None
        True
        """
        self.edition.check()
        if self.source is None:
            do = "make the memory from rows again, or remember in the projected form before"
            raise ContractError(complaint("rows", "still there", "a memory without rows", do))
        return self.source

    def appended(
        self, rows: Tensor, lengths: Tensor | Sequence[int] | None, value_rows: Tensor | None
    ) -> Holding:
        """Put new rows behind each memory's last real one.

        >>> import torch
        >>> more = torch.ones(2, 2, 4)
        >>> Holding.of(torch.ones(2, 3, 4), [3, 1], None).appended(more, None, None).extent.lengths
        tensor([5, 3])
        """
        source, extent = self.rows(), self.extent
        source.check_more(rows, value_rows)
        new = Extent.of(rows.shape[0], rows.shape[1], lengths, rows.device)
        rows = new.cleared(rows)
        value_rows = None if value_rows is None else new.cleared(value_rows)
        contents = self.contents
        if extent.lengths is None:
            source = source.extended(rows, value_rows)
        else:  # they take the place of padding, which layers may have projected
            whole, others = source.kept()
            behind = None if value_rows is None else extent.behind(others, value_rows)
            source = Source.of(extent.behind(whole, rows), behind)
            contents = _cut(contents, extent.least)
        return Holding(extent.extended(new), self.edition.extended(new.size[1]), source, contents)

    def replaced(
        self,
        from_row: int,
        rows: Tensor,
        lengths: Tensor | Sequence[int] | None,
        value_rows: Tensor | None,
    ) -> Holding:
        """Put new rows in place of those from `from_row` on, and refuse whoever holds the old.

        >>> import torch
        >>> old = Holding.of(torch.ones(2, 3, 4), None, None)
        >>> old.replaced(2, torch.ones(2, 2, 4), None, None).extent.size
        (2, 4)
        """
        source, (m, _) = self.rows(), self.extent.size
        source.check_more(rows, value_rows)
        Extent.of(m, rows.shape[1], lengths, rows.device)  # raises before anything is outdated
        check_size("from_row", from_row, 0, "count the rows that stay")
        if from_row > self.extent.least:
            want, given = f"at most {self.extent.least}, the shortest memory's rows", str(from_row)
            raise ContractError(complaint("from_row", want, given, "append what lies behind them"))
        edition, contents = self.edition.cut(from_row), _cut(self.contents, from_row)
        whole = Extent.of(m, from_row, None, rows.device)
        kept = Holding(whole, edition, source.cut(from_row), contents)
        return kept.appended(rows, lengths, value_rows)

    def mapped(self, memories: int, change: Callable[[Tensor], Tensor]) -> Holding:
        """Change every tensor that has a memory axis; there are `memories` afterwards.

        >>> import torch
        >>> Holding.of(torch.ones(2, 3, 4), None, None).mapped(1, lambda x: x[:1]).extent.size
        (1, 3)
        """
        self.edition.check()
        extent = self.extent.mapped(memories, change)
        source = None if self.source is None else self.source.mapped(change)
        contents = {layer: each.mapped(change) for layer, each in self.contents.items()}
        return Holding(extent, Edition.of(extent.size[1]), source, contents)

    @property
    def projected(self) -> bool:
        """Whether every layer that has written keeps keys and values, and needs no rows.

        >>> import torch
        >>> Holding.of(torch.ones(2, 3, 4), None, None).written(7, Content(())).projected
        False
        """
        return all(content.keys is not None for content in self.contents.values())

    @property
    def nbytes(self) -> int:
        """Bytes held, counted over distinct storage.

        >>> import torch
        >>> Holding.of(torch.ones(2, 3, 4), None, None).nbytes
        96
        """
        storages = [tensor.untyped_storage() for tensor in self.tensors()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def tensors(self) -> list[Tensor]:
        """List every tensor that is held.

        >>> import torch
        >>> len(Holding.of(torch.ones(2, 3, 4), [3, 1], None).tensors())
        3
        """
        kept = [x for each in self.contents.values() for x in (each.key, each.value)]
        kept += [self.extent.lengths, self.extent.readable]
        kept += [] if self.source is None else [self.source.rows, self.source.value_rows]
        return [tensor for tensor in kept if tensor is not None]


def _cut(contents: Mapping[int, Content], rows: int) -> dict[int, Content]:
    return {layer: content.cut(rows) for layer, content in contents.items()}
