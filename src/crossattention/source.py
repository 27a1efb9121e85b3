"""The rows of a memory as they were remembered: what keys and values are projected from.

Rows without lengths are the caller's own tensor, so they are watched: written to since, they are
refused. Rows that were appended to live in storage of the memory's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.argument import FLOATS, check_tensor
from crossattention.errors import ContractError, complaint, describe
from crossattention.grown import Grown


@dataclass(frozen=True)
class Source:
    """Rows [m, s, c], and those that values come from if they are others.

    Attributes:
        keys, values: the rows; values None: the same.
        versions: how often the caller's tensors had been written to; empty: not watched.

    >>> Source.of(torch.ones(2, 3, 4)).rows.shape
    torch.Size([2, 3, 4])
    """

    keys: Grown
    values: Grown | None = None
    versions: tuple[int, ...] = ()

    @classmethod
    def of(cls, rows: Tensor, value_rows: Tensor | None = None) -> Source:
        """Take rows, and watch them: they may be the caller's own.

        >>> Source.of(torch.ones(2, 3, 4)).versions
        (0,)
        """
        values = None if value_rows is None else Grown.of(value_rows, axis=1)
        return cls(Grown.of(rows, axis=1), values, versions_of(rows, value_rows))

    @property
    def rows(self) -> Tensor:
        """The rows that keys come from, unchecked."""
        return self.keys.rows

    @property
    def value_rows(self) -> Tensor | None:
        """The rows that values come from, unchecked; None: the same."""
        return None if self.values is None else self.values.rows

    def kept(self) -> tuple[Tensor, Tensor]:
        """Give the rows that keys and values come from, as they were when they were remembered.

        Raises:
            ContractError: they have been written to since.

        >>> Source.of(torch.ones(2, 3, 4)).kept()[1].shape
        torch.Size([2, 3, 4])
        """
        rows, value_rows = self.rows, self.value_rows
        now = versions_of(rows, value_rows) if self.versions else ()
        if now and now != self.versions:
            do = "call remember again, or give it a copy where a buffer is filled anew"
            want = "as they were when they were remembered"
            raise ContractError(complaint("rows", want, "rows that were written to since", do))
        return rows, rows if value_rows is None else value_rows

    def check_more(self, rows: Tensor, value_rows: Tensor | None) -> None:
        """Check that rows can follow these.

        >>> Source.of(torch.ones(2, 3, 4)).check_more(torch.ones(2, 5, 4), None)
        """
        check_rows(rows, value_rows)
        pairs = (("rows", rows, self.rows), ("value_rows", value_rows, self.value_rows))
        for name, given, there in pairs:
            if (given is None) is not (there is None):
                want = "given where the memory has them, and only there"
                raise ContractError(complaint(name, want, describe(given), "give both or neither"))
            if given is None or there is None:
                continue
            shape = there.shape[0], given.shape[1], there.shape[2]
            if (given.shape, given.dtype, given.device) != (shape, there.dtype, there.device):
                want = f"like the rows that are there: {describe(there)}"
                do = "only the number of rows may differ"
                raise ContractError(complaint(name, want, describe(given), do))

    def extended(self, rows: Tensor, value_rows: Tensor | None) -> Source:
        """Put rows behind the last.

        >>> Source.of(torch.ones(2, 3, 4)).extended(torch.ones(2, 2, 4), None).rows.shape
        torch.Size([2, 5, 4])
        """
        self.kept()
        keys, values = self.keys.extended(rows), self.values
        if values is not None and value_rows is not None:
            values = values.extended(value_rows)
        return Source(keys, values)

    def cut(self, length: int) -> Source:
        """Give up the rows from `length` on.

        >>> Source.of(torch.ones(2, 3, 4)).cut(2).rows.shape
        torch.Size([2, 2, 4])
        """
        self.kept()
        values = None if self.values is None else self.values.cut(length)
        return Source(self.keys.cut(length), values)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Source:
        """Change rows alike; the result stands for itself.

        >>> Source.of(torch.ones(2, 3, 4)).mapped(lambda x: x[:1]).rows.shape
        torch.Size([1, 3, 4])
        """
        rows, values = self.kept()
        return Source.of(change(rows), None if self.values is None else change(values))

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        if self.versions:  # copies count anew
            self.__dict__["versions"] = versions_of(self.rows, self.value_rows)


def check_rows(rows: Tensor, value_rows: Tensor | None = None) -> None:
    """Check rows [m, s, c], and the rows that values come from if they are others.

    >>> check_rows(torch.ones(2, 3, 4), torch.ones(2, 3, 5))
    """
    want, do = "a float tensor [m, s, c]", "pass what the encoder returned, one row a position"
    check_tensor("rows", rows, FLOATS, want, do, rank=3)
    if value_rows is None:
        return
    check_tensor("value_rows", value_rows, FLOATS, want, do, rank=3)
    names = "rows` and `value_rows"
    if value_rows.shape[:2] != rows.shape[:2]:
        shapes = f"shapes {list(rows.shape)} and {list(value_rows.shape)}"
        do = "each row has one key and one value"
        raise ContractError(complaint(names, "of equal m and s", shapes, do))
    if value_rows.device != rows.device:
        places = f"{rows.device} and {value_rows.device}"
        raise ContractError(complaint(names, "on one device", places, "move either"))


def versions_of(*kept: Tensor | None) -> tuple[int, ...]:
    """Read how often tensors have been written to; empty where nothing is known of it.

    Inference tensors do not count, and a compiled graph does not look.

    >>> rows = torch.ones(2, 3, 4)
    >>> before = versions_of(rows)
    >>> versions_of(rows.zero_()) == before
    False
    """
    given = [tensor for tensor in kept if tensor is not None]
    if torch.compiler.is_compiling() or any(tensor.is_inference() for tensor in given):
        return ()
    return tuple(tensor._version for tensor in given)
