"""Show how a training run is getting on: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from crossattention.translate.options import Progress, Report

SECONDS = 30.0  # between two lines where there is no terminal


@contextmanager
def following() -> Iterator[Report]:
    """Give a report function, and show what it is told on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines().report
        return
    text = TextColumn("{task.description}", markup=False)
    with Bar(TextColumn("{task.fields[stage]:<6}"), BarColumn(), text, console=console) as bar:
        task = bar.add_task("", total=1.0, stage="read")

        def report(progress: Progress) -> None:
            bar.update(
                task, completed=progress.done, stage=progress.stage, description=state(progress)
            )
            if progress.stage == "judge" or progress.message:
                bar.console.print(_line(progress), markup=False, highlight=False)

        yield report


class _Lines:
    """Write a line when a stage begins or has something to say, and every half minute."""

    def __init__(self) -> None:
        self.stage, self.last = "", 0.0

    def report(self, progress: Progress) -> None:
        """Write a line if one is due."""
        now = time.monotonic()
        due = progress.stage != self.stage or now - self.last >= SECONDS
        if due or progress.message or progress.stage == "judge":
            print(_line(progress), file=sys.stderr, flush=True)
            self.stage, self.last = progress.stage, now


def _line(progress: Progress) -> str:
    return f"{progress.stage:<6} {progress.done:>4.0%} {state(progress)}".rstrip()


def state(progress: Progress) -> str:
    """Say in words where a run stands.

    >>> state(Progress("train", 0.5, 10, 1, 2.25, 1234.0, 61.0))
    'epoch 2  step 10  loss 2.250  1,234 tokens/s  0:01:01 left'
    """
    parts = [progress.message] if progress.message else []
    if progress.stage in ("train", "judge"):
        parts.append(f"epoch {progress.epoch + 1}  step {progress.step}")
    if progress.bleu is not None:
        parts.append(f"BLEU {progress.bleu:.2f}")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.3f}")
    if progress.tokens_per_second is not None:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    if progress.seconds_left is not None:
        parts.append(f"{timedelta(seconds=round(progress.seconds_left))} left")
    return "  ".join(parts)
