"""The form of a memory: is projected or raw really the cheaper one where "auto" says so?

A whole life is timed, the projecting and every read, once in each form; the regret is the chosen
form's time over the better one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor

import crossattention as xa
from benchmarks.run import Run
from benchmarks.side_by_side import compare, quantile

LIVES = ((1, 1), (1, 4), (1, 16), (1, 64), (16, 1), (32, 1), (32, 2), (128, 1))  # queries, reads
ROWS, BATCHES = (30, 257, 1500), (1, 8)
LAYERS = ((256, 4), (512, 8), (1024, 16))  # width, heads
# Sizes that the choice was not fitted to: memories of several rows, widths, heads and batches.
OTHER_LIVES = ((1, 8), (5, 5), (24, 3), (64, 1))
OTHER = ((384, 6, 3, 100), (512, 4, 16, 50), (512, 16, 2, 577), (768, 8, 1, 197), (1280, 20, 1, 50))


@dataclass(frozen=True)
class Life:
    """One layer reads memories `reads` times, `queries` rows each time."""

    layer: xa.CrossAttention
    source: Tensor
    query: Tensor
    reads: int

    def live(self, form: str) -> Tensor:
        """Remember, then read as often as this life has reads; give the last result."""
        memory = self.remember(form)
        output = self.query
        for _ in range(self.reads):
            output = self.layer(self.query, memory)
        return output

    def remember(self, form: str) -> xa.Memory:
        """Prepare the memory, saying all that is known of its life."""
        over_life = self.query.shape[1] * self.reads
        return self.layer.remember(self.source, queries=over_life, reads=self.reads, form=form)

    @property
    def chosen(self) -> str:
        """The form that "auto" takes: a projected memory keeps keys, a raw one does not."""
        memory = self.remember("auto")
        kept = next(iter(memory.contents.values()), None)
        return "raw" if kept is None or kept.key is None else "projected"


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every life, number of rows, batch and layer, in float32 and in bfloat16."""
    with torch.inference_mode():
        for dtype, (width, heads, batch, count), life in _cases(run.quick):
            yield _row(run, dtype, (width, heads, batch, count), life)


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give the median and the worst regret, where that is, and both for each kind of row."""
    found = {**_regret(rows)}
    for kind in dict.fromkeys(f"{row['dtype']}, {row['sizes']}" for row in rows):
        some = [row for row in rows if f"{row['dtype']}, {row['sizes']}" == kind]
        found[kind] = _regret(some)
    return found


def _cases(quick: bool) -> Iterator[tuple[torch.dtype, tuple[int, int, int, int], tuple[int, int]]]:
    """Give dtype, (width, heads, batch, rows) and (queries, reads)."""
    if quick:
        yield from product((torch.float32,), ((256, 4, 1, 30),), LIVES)
        return
    fitted = [(*layer, *rest) for layer, *rest in product(LAYERS, BATCHES, ROWS)]
    for dtype in (torch.float32, torch.bfloat16):
        yield from product((dtype,), fitted, LIVES)
        yield from product((dtype,), OTHER, OTHER_LIVES)


def _row(
    run: Run, dtype: torch.dtype, sizes: tuple[int, int, int, int], asked: tuple[int, int]
) -> dict[str, object]:
    (width, heads, batch, count), (queries, reads) = sizes, asked
    layer = xa.CrossAttention(width, heads).eval().to(dtype)
    source = torch.randn(batch, count, width, dtype=dtype)
    life = Life(layer, source, torch.randn(batch, queries, width, dtype=dtype), reads)
    lanes = {form: partial(life.live, form) for form in ("projected", "raw")}
    timing = compare(lanes, run.seconds(0.2), least=3)
    chosen = life.chosen
    (other,) = set(lanes) - {chosen}
    name = str(dtype).removeprefix("torch.")
    return {
        "case": f"{queries} × {reads} over {batch} × {count}, {width} wide, {heads} heads, {name}",
        "dtype": name, "sizes": "other" if sizes in OTHER else "fitted",
        "chosen": chosen, "regret": max(1.0, timing.ratio(chosen, other)),
    } | timing.row()  # fmt: skip


def _regret(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    regrets = [float(row["regret"]) for row in rows]  # type: ignore[arg-type]
    worst = max(rows, key=lambda row: row["regret"], default=None)  # type: ignore[arg-type,return-value]
    return {
        "regret_median": quantile(regrets, 0.5),
        "regret_worst": max(regrets, default=None),
        "worst_case": None if worst is None else worst["case"],
    }
