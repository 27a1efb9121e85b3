"""The sizes of a cross-attention layer, worked out and checked once."""

from __future__ import annotations

from dataclasses import dataclass

from crossattention.argument import check_size
from crossattention.errors import ContractError, complaint, describe


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
        check_size("width", width, 1, "pass the width of the query stream")
        check_size("heads", heads, 1, "pass how many heads read")
        shared = heads if memory_heads is None else memory_heads
        check_size("memory_heads", shared, 1, "pass how many heads the memory has")
        if heads % shared:
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
        check_size("key_width", key_width, 1, "pass the width of one head's keys")
        check_size("value_width", value_width, 1, "pass the width of one head's values")
        rows = _memory_widths(width if memory_width is None else memory_width)
        return cls(width, heads, shared, key_width, value_width, rows)


def _memory_widths(given: int | tuple[int, int]) -> tuple[int, int]:
    pair = given if isinstance(given, tuple) else (given, given)
    if len(pair) != 2:
        want, do = "one width, or (key rows, value rows)", "pass an integer or a pair"
        raise ContractError(complaint("memory_width", want, describe(given), do))
    for each in pair:
        check_size("memory_width", each, 1, "pass an integer, or (key rows, value rows)")
    return pair
