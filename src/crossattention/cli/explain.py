"""`crossattention explain`: the cost card of a read: forms, kernels, refusals, choices."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from crossattention.errors import ContractError, complaint

if TYPE_CHECKING:
    from crossattention.nn.explain import FormCost, FormExplanation

DTYPES = ("float32", "bfloat16", "float16", "float64")


def explain(
    queries: Annotated[int, Option(help="Rows of one query sequence in one read.")],
    memory: Annotated[int, Option(help="Rows of one memory.")],
    width: Annotated[int, Option(help="Width of the model.")],
    heads: Annotated[int, Option(help="Query heads.")],
    memory_heads: Annotated[
        int | None, Option(help="Key and value heads; else as --heads.")
    ] = None,
    life: Annotated[
        int | None, Option(help="Query rows that will read a memory in all; else one read's.")
    ] = None,
    batch: Annotated[int, Option(help="Memories.")] = 1,
    beams: Annotated[int, Option(help="Query sequences that read each memory.")] = 1,
    layers: Annotated[int, Option(help="Layers that read the same rows.")] = 1,
    dtype: Annotated[str, Option(help=f"One of {', '.join(DTYPES)}.")] = "float32",
    table: Annotated[
        Path | None, Option(help="A cost table that `tune` wrote; else the shipped one.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Show what reading a memory costs: each form and kernel, the choice, and where it flips.

    Multiply-adds of a form count all layers over the memory's life; those of a kernel, one read by
    one layer. The form of less work is taken: its multiply-adds, and as many as take as long as its
    calls and what it fetches from memory. Seconds are estimates from a cost table; nothing is
    measured.
    """
    if dtype not in DTYPES:
        want = f"one of {', '.join(DTYPES)}"
        raise ContractError(complaint("--dtype", want, repr(dtype), "choose one"))
    import torch

    from crossattention.kernels.costs import SHIPPED, Table
    from crossattention.nn.explain import Reads, explain_forms

    costs = SHIPPED if table is None else Table.read(table)

    reads = Reads(queries, memory, width, heads, memory_heads, batch, beams, layers, life)
    found = explain_forms(reads, getattr(torch, dtype), costs)
    if as_json:
        print(json.dumps({"life": reads.over_life, **_object(found)}))
    else:
        _card(found, reads.over_life)


def _object(found: FormExplanation) -> dict[str, Any]:
    return {
        "chosen": found.chosen,
        "flips_at": found.flips_at,
        "forms": [_form(form) for form in found.forms],
    }


def _form(form: FormCost) -> dict[str, Any]:
    held = dataclasses.asdict(form)
    for each in held["kernels"]["kernels"]:
        if math.isnan(each["seconds"]):  # the table does not know the kernel, nor JSON the number
            each["seconds"] = None
    return held


def _card(found: FormExplanation, life: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from crossattention.nn.form import CALL, MOVED

    console = Console()
    forms = Table(title=f"forms, over a life of {life:,} query rows", title_justify="left")
    kernels = Table(title="kernels, one read by one layer", title_justify="left")
    for table, heads in ((forms, ("form", "")), (kernels, ("form", "kernel"))):
        work = ("work",) if table is forms else ()
        for name in (*filter(None, heads), "multiply-adds", *work, "bytes"):
            table.add_column(name, justify="left" if name in heads else "right")
    forms.add_column("")
    kernels.add_column("µs", justify="right")
    kernels.add_column("")
    for form in found.forms:
        chosen = "chosen" if form.name == found.chosen else ""
        counts = (form.multiply_adds, form.work, form.bytes)
        forms.add_row(form.name, *(f"{count:,}" for count in counts), chosen)
        for each in form.kernels.kernels:
            verdict = "chosen" if each.name == form.kernels.chosen else ""
            kernels.add_row(
                form.name, each.name, f"{each.multiply_adds:,}", f"{each.bytes:,}",
                f"{each.seconds * 1e6:,.1f}",
                f"refuses: {'; '.join(each.refusals)}" if each.refusals else verdict,
            )  # fmt: skip
    console.print(forms)
    console.print(
        f"raw takes less work up to {found.flips_at:,} query rows over a life, then projected.\n"
        f"work: multiply-adds (nine tenths of them to read raw rows), {CALL:,} more for each "
        f"call, {MOVED} for each number fetched.\n"
    )
    console.print(kernels)
    console.print(f"table: {found.forms[0].kernels.table}")
