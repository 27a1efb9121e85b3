"""Choose the form of a memory by what reading it will cost over its life.

    projected   s·g·(c_k·d + c_v·e) once        + N·s·h·(d + e)
    raw         N·h·(c_k·d + c_v·e)             + N·s·h·(c_k + c_v)

in multiply-adds for one memory, where N counts the query rows that will ever read it. Raw wins
while N is small (about c / h for long memories), projected afterwards.
"""

from __future__ import annotations

from torch import Tensor, nn

from crossattention.argument import check_size
from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.project import check_kind, check_widths
from crossattention.nn.sizes import Sizes

FORMS = ("auto", "projected", "raw")


def form_costs(queries: int | None, rows: int, sizes: Sizes) -> dict[str, int]:
    """Count the multiply-adds of each form for one memory.

    Args:
        queries: N; None expects many: as many as there are numbers in the rows.
        rows: s.
        sizes: those of the layer.

    >>> form_costs(1, 100, Sizes.of(512, 8, None, (None, None), None))
    {'projected': 52531200, 'raw': 1343488}
    """
    h, g, d, e = sizes.heads, sizes.memory_heads, sizes.key_width, sizes.value_width
    key_rows, value_rows = sizes.memory_widths
    if queries is not None:
        check_size("queries", queries, 0, "count the query rows over the memory's life")
    maps = key_rows * d + value_rows * e
    many = rows * sizes.width if queries is None else queries
    return {
        "projected": rows * g * maps + many * rows * h * (d + e),
        "raw": many * h * maps + many * rows * h * (key_rows + value_rows),
    }


def choose_form(form: str, costs: dict[str, int], refusals: list[str]) -> str:
    """Take the form that was named, or the cheaper one that is not refused.

    Args:
        form: "auto", "projected" or "raw".
        costs: from `form_costs`.
        refusals: why the raw form cannot serve this layer, in words.
    Raises:
        ContractError: an unknown form, or "raw" where it is refused.

    >>> choose_form("auto", {"projected": 5, "raw": 3}, [])
    'raw'
    """
    if form not in FORMS:
        names = ", ".join(repr(each) for each in FORMS)
        raise ContractError(complaint("form", f"one of {names}", describe(form), "choose one"))
    if form == "raw" and refusals:
        do = 'pass form="projected", or "auto"'
        raise ContractError(complaint("form", "one the layer can take", "; ".join(refusals), do))
    if form == "auto":
        return "raw" if not refusals and costs["raw"] < costs["projected"] else "projected"
    return form


def rows_of(
    memory: Memory, sizes: Sizes, key_projection: nn.Module, value_projection: nn.Module
) -> tuple[Tensor, Tensor]:
    """Give the rows that a layer's keys and values come from, [m, s, c_k] and [m, s, c_v].

    Raises:
        ContractError: the memory no longer holds rows, or rows that the projections cannot read.

    >>> import torch
    >>> sizes = Sizes.of(8, 2, (5, 5), (None, None), None)
    >>> rows_of(Memory.of(torch.ones(2, 3, 5)), sizes, nn.Linear(5, 8), nn.Linear(5, 8))[1].shape
    torch.Size([2, 3, 5])
    """
    rows, other = memory.holding.rows().kept()
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
    return rows, other
