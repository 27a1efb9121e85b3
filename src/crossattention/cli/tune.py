"""`crossattention tune`: measure this machine's kernels; the table is used where it is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from crossattention.errors import ContractError, complaint

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS, QUICK = 0.35, 0.02  # of turns, for each problem


def tune(
    out: Annotated[Path, Option(help="The table's file, JSON.")],
    threads: Annotated[
        int | None, Option(help="Threads of torch; else as many as it takes.")
    ] = None,
    quick: Annotated[
        bool, Option("--quick", help="Measure shortly: to see that it works.")
    ] = False,
) -> None:
    """Measure how fast each kernel is on this machine, in about a minute, and write a table.

    It is used where it is named, and nowhere else: `explain --table FILE`, or in Python
    `kernel=Cheapest(Table.read(FILE))`. Measure on an idle machine, with the threads of the work.
    """
    _check(out, threads)
    import torch

    from crossattention.attention.tune import tune as measured
    from crossattention.kernels.native.library import absent

    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with _showing() as progress:
            table = measured(QUICK if quick else SECONDS, progress=progress)
        table.write(out)
    except KeyboardInterrupt:
        print(f"interrupted: nothing was written to {out}.", file=sys.stderr)
        raise
    missing = absent()
    if missing:
        print(f"kernel native is not in the table: {missing}.", file=sys.stderr)
    print(f"{out}: {torch.get_num_threads()} threads, torch {torch.__version__}")


def _check(out: Path, threads: int | None) -> None:
    """Refuse at the door what would fail after a minute."""
    if out.is_dir():
        raise ContractError(complaint("--out", "a file", f"the directory {str(out)!r}", "name one"))
    if not out.absolute().parent.is_dir():
        do = "make the directory first"
        given = f"{str(out)!r}, whose directory is missing"
        raise ContractError(complaint("--out", "a file in a directory that exists", given, do))
    if not os.access(out.absolute().parent, os.W_OK):
        given = f"{str(out)!r}, whose directory is not"
        raise ContractError(
            complaint("--out", "a file that can be written", given, "choose another")
        )
    if threads is not None and threads < 1:
        raise ContractError(complaint("--threads", "at least 1", str(threads), "raise it"))


@contextmanager
def _showing() -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("measuring", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
