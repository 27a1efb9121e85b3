"""Choose the form of a memory by the work of reading it over its life.

                multiply-adds                                    numbers moved          calls
    projected   m·s·g·(c_k·d + c_v·e) + m·N·s·h·(d + e)          W                      2
    raw         m·N·h·(c_k·d + c_v·e) + m·N·s·h·(c_k + c_v)·0.9  R·W + m·N·h·(c_k + c_v)  4·R

    work = multiply-adds + MOVED · numbers + CALL · calls,       W = g·(c_k·d + c_v·e)

m memories are read R times, by N query rows each in all. Projecting fetches the W weights of keys
and values once; a raw read does so each time, to fold its queries and to map its averages. So raw
wins where the rows are many and the reads few, projected elsewhere. The constants are a processor's
(AMD's fourth EPYC, two threads), written here: nothing is measured, and all ranks choose alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from crossattention.argument import check_size
from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.project import check_kind, check_widths
from crossattention.nn.sizes import Sizes

FORMS = ("auto", "projected", "raw")
# Multiply-adds that take as long as starting one operation (13 µs, at 75 G of them a second), and
# as fetching one number from memory (at 19 GB a second).
CALL, MOVED = 1_000_000, 16
PROJECTING = 2  # calls: keys, values
READING_RAW = 4  # calls: queries and averages, each mapped and brought back into order


class Life(NamedTuple):
    """Say who will read memories.

    Attributes:
        memories, rows: m and s.
        queries: N, query rows that will read each memory in all; None expects many: as many as
            there are numbers in its rows.
        reads: R, how many reads they come in; None: one row a read, as in a decoder's steps.
        dtype: of the rows.
    """

    memories: int
    rows: int
    queries: int | None = None
    reads: int | None = None
    dtype: torch.dtype = torch.float32


class Work(NamedTuple):
    """What one form of all memories takes over their life, but for what both forms do.

    Attributes:
        multiply_adds: of mapping and reading.
        numbers: weights, folded queries and averages, fetched from memory.
        calls: operations started.
        halved: of the multiply-adds, those in half the time: long products of brain floats. Reads
            compute in float32 whatever the dtype.
        wide: of the multiply-adds, those in nine tenths of the time: reads of rows as wide as they
            are, each met by the queries of all heads.

    >>> Work(multiply_adds=5, numbers=1, calls=2).total
    2000021
    """

    multiply_adds: int
    numbers: int
    calls: int
    halved: int = 0
    wide: int = 0

    @property
    def total(self) -> int:
        """All of it, in multiply-adds that would take as long."""
        saved = self.halved // 2 + self.wide // 10
        return self.multiply_adds - saved + MOVED * self.numbers + CALL * self.calls


def form_costs(life: Life, sizes: Sizes) -> dict[str, Work]:
    """Count the work of each form.

    Args:
        life: who will read.
        sizes: those of the layer.
    Raises:
        ContractError: negative counts, or more reads than query rows.

    >>> form_costs(Life(1, 100, queries=1), Sizes.of(512, 8, None, (None, None), None))["raw"]
    Work(multiply_adds=1343488, numbers=532480, calls=4, halved=0, wide=819200)
    """
    h, g, d, e = sizes.heads, sizes.memory_heads, sizes.key_width, sizes.value_width
    key_rows, value_rows = sizes.memory_widths
    m, s = life.memories, life.rows
    queries, reads = _counted(life, sizes)
    maps, asked = key_rows * d + value_rows * e, m * queries * h
    once, weights, folded = m * s * g * maps, g * maps, asked * (key_rows + value_rows)
    halved = once if life.dtype is torch.bfloat16 else 0
    return {
        "projected": Work(once + asked * s * (d + e), weights, PROJECTING, halved),
        "raw": Work(
            asked * maps + s * folded, reads * weights + folded, reads * READING_RAW, 0, s * folded
        ),
    }


def choose_form(form: str, costs: Mapping[str, Work], refusals: list[str]) -> str:
    """Take the form that was named, or the one of less work that is not refused.

    Args:
        form: "auto", "projected" or "raw".
        costs: from `form_costs`.
        refusals: why the raw form cannot serve this layer, in words.
    Raises:
        ContractError: an unknown form, or "raw" where it is refused.

    >>> choose_form("auto", {"projected": Work(5, 0, 2), "raw": Work(3, 0, 2)}, [])
    'raw'
    """
    check_form(form, refusals)
    if form == "auto":
        less = costs["raw"].total < costs["projected"].total
        return "raw" if less and not refusals else "projected"
    return form


def check_form(form: str, refusals: list[str]) -> None:
    """Raise what `choose_form` would, before there is anything to choose for.

    >>> check_form("raw", [])
    """
    if form not in FORMS:
        names = ", ".join(repr(each) for each in FORMS)
        raise ContractError(complaint("form", f"one of {names}", describe(form), "choose one"))
    if form == "raw" and refusals:
        do = 'pass form="projected", or "auto"'
        raise ContractError(complaint("form", "one the layer can take", "; ".join(refusals), do))


def rows_of(
    memory: Memory, sizes: Sizes, key_projection: nn.Module, value_projection: nn.Module
) -> tuple[Tensor, Tensor]:
    """Give the rows that a layer's keys and values come from, [m, s, c_k] and [m, s, c_v].

    Raises:
        ContractError: the memory no longer holds rows, or rows that the projections cannot read.

    >>> sizes = Sizes.of(8, 2, (5, 5), (None, None), None)
    >>> rows_of(Memory.of(torch.ones(2, 3, 5)), sizes, nn.Linear(5, 8), nn.Linear(5, 8))[1].shape
    torch.Size([2, 3, 5])
    """
    rows, other = memory.holding.rows().kept()
    check_sources(rows, other, sizes, key_projection, value_projection)
    return rows, other


def check_sources(
    rows: Tensor,
    other: Tensor,
    sizes: Sizes,
    key_projection: nn.Module,
    value_projection: nn.Module,
) -> None:
    """Check that a layer's projections can read the rows that keys and values come from.

    >>> rows, sizes = torch.ones(2, 3, 5), Sizes.of(8, 2, (5, 5), (None, None), None)
    >>> check_sources(rows, rows, sizes, nn.Linear(5, 8), nn.Linear(5, 8))
    """
    g, (key_width, value_width) = sizes.memory_heads, sizes.memory_widths
    wide = g * sizes.key_width, g * sizes.value_width
    projections = (
        ("key", "rows", rows, key_projection, key_width, wide[0]),
        ("value", "value_rows", other, value_projection, value_width, wide[1]),
    )
    for kind, name, given, projection, width, written in projections:
        check_widths(f"{kind}_projection", projection, width, written)
        if given.shape[-1] != width:
            want = f"of width {width}, the layer's memory_width"
            shape = f"shape {list(given.shape)}"
            raise ContractError(complaint(name, want, shape, "check which stream is read"))
        check_kind(name, given, projection)


def _counted(life: Life, sizes: Sizes) -> tuple[int, int]:
    """Check N and R, and fill in what was left out."""
    queries, reads = life.queries, life.reads
    if queries is not None:
        check_size("queries", queries, 0, "count the query rows over the memory's life")
    if reads is not None:
        check_size("reads", reads, 0, "count the reads over the memory's life")
    if queries is not None and reads is not None and reads > max(queries, 1):
        want, do = f"at most `queries`, {queries}", "count the query rows of all reads in `queries`"
        raise ContractError(complaint("reads", want, str(reads), do))
    many = life.rows * sizes.width if queries is None else queries
    return many, many if reads is None else reads
