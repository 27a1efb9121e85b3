"""Ask one question, in a process of its own: nothing hangs on what was asked before."""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from time import monotonic
from typing import Any

import torch

from benchmarks.run import Run
from benchmarks.side_by_side import Unequal


def ask_apart(name: str, run: Run) -> dict[str, object]:
    """Answer one question in a new process; Ctrl-C reaches it too, and it gives what it has."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        answer = process.submit(ask, name, run)
        while True:
            try:
                return answer.result()
            except KeyboardInterrupt:
                continue


def ask(name: str, run: Run) -> dict[str, object]:
    """Answer one question; what was measured before Ctrl-C or a mismatch is kept."""
    torch.set_num_threads(run.threads)
    asked = module(name)
    rows: list[dict[str, object]] = []
    start, failed, interrupted = monotonic(), None, False
    load = os.getloadavg()[0]
    try:
        for row in asked.rows(run):
            rows.append(row)
            run.tell(f"{name}: {len(rows)} rows, {monotonic() - start:.0f} s, {row['case']}")
    except KeyboardInterrupt:
        interrupted = True
    except Unequal as error:
        failed = str(error)
    return {
        "summary": asked.summary(rows),
        "rows": rows,
        "missing": run.missing,
        "failed": failed,
        "interrupted": interrupted,
        "seconds": monotonic() - start,
        "load": [load, os.getloadavg()[0]],
    }


def module(name: str) -> Any:
    """Import a question."""
    return importlib.import_module(f"benchmarks.{name}")
