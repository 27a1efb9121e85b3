"""The sizes of a cross-attention layer, worked out and checked once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from crossattention.errors import ContractError, complaint


@dataclass(frozen=True)
class Sizes:
    """Name every size of a layer.

    Attributes:
        width: c, of the query stream and of the output.
        heads, memory_heads: h and g.
        key_width, value_width: d and e, of one head.
        memory_widths: of the rows that keys come from, and of those that values come from.
    """

    width: int
    heads: int
    memory_heads: int
    key_width: int
    value_width: int
    memory_widths: tuple[int, int]

    @classmethod
    def of(
        cls,
        width: int,
        heads: int,
        memory_width: int | tuple[int, int] | None,
        head_widths: tuple[int | None, int | None],
        memory_heads: int | None,
    ) -> Sizes:
        """Fill in what was left out, and check.

        Raises:
            ContractError: sizes below 1, or heads that do not divide.

        >>> Sizes.of(8, 2, None, (None, 3), None)
        Sizes(width=8, heads=2, memory_heads=2, key_width=4, value_width=3, memory_widths=(8, 8))
        """
        shared = heads if memory_heads is None else memory_heads
        if heads < 1 or shared < 1 or heads % shared:
            given = f"{heads} heads over {shared} memory heads"
            do = "each memory head serves the same number of query heads"
            raise ContractError(complaint("heads", "a multiple of memory_heads", given, do))
        key_width, value_width = head_widths
        if key_width is None:
            if width % heads:
                given = f"width {width} over {heads} heads"
                do = "change either, or pass key_width"
                raise ContractError(complaint("width", "a multiple of heads", given, do))
            key_width = width // heads
        value_width = key_width if value_width is None else value_width
        pair = memory_width if isinstance(memory_width, tuple) else (memory_width, memory_width)
        key_rows, value_rows = (width if each is None else each for each in pair)
        if min(width, key_width, value_width, key_rows, value_rows) < 1:
            given = f"{width}, {key_width}, {value_width}, {key_rows} and {value_rows}"
            raise ContractError(complaint("widths", "at least 1", given, "pass positive sizes"))
        return cls(width, heads, shared, key_width, value_width, (key_rows, value_rows))

    def check_query(self, query: Tensor) -> None:
        """Check that a query stream is [b, t, c].

        >>> import torch
        >>> Sizes.of(8, 2, None, (None, None), None).check_query(torch.ones(1, 3, 8))
        """
        if query.dim() != 3 or query.shape[-1] != self.width:
            want, given = f"[b, t, {self.width}]", f"shape {list(query.shape)}"
            do = "project the stream to the layer's width first"
            raise ContractError(complaint("query", want, given, do))
