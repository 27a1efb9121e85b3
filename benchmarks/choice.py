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


@dataclass(frozen=True)
class Life:
    """One layer reads memories `reads` times, `queries` rows each time."""

    layer: xa.CrossAttention
    source: Tensor
    query: Tensor
    reads: int

    def live(self, form: str) -> Tensor:
        """Remember, then read as often as this life has reads; give the last result."""
        over_life = self.query.shape[1] * self.reads
        memory = self.layer.remember(self.source, queries=over_life, form=form)
        output = self.query
        for _ in range(self.reads):
            output = self.layer(self.query, memory)
        return output

    @property
    def chosen(self) -> str:
        """The form that "auto" takes: a projected memory keeps keys, a raw one does not."""
        over_life = self.query.shape[1] * self.reads
        memory = self.layer.remember(self.source, queries=over_life)
        kept = next(iter(memory.contents.values()), None)
        return "raw" if kept is None or kept.key is None else "projected"


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every life, number of rows, batch and layer, but the longest ones of the widest."""
    with torch.inference_mode():
        for (width, heads), batch, count, (queries, reads) in product(LAYERS, BATCHES, ROWS, LIVES):
            if run.quick and (width, batch, count) != (256, 1, 30):
                continue
            layer = xa.CrossAttention(width, heads).eval()
            source, query = torch.randn(batch, count, width), torch.randn(batch, queries, width)
            life = Life(layer, source, query, reads)
            lanes = {form: partial(life.live, form) for form in ("projected", "raw")}
            timing = compare(lanes, run.seconds(0.2), least=3)
            chosen = life.chosen
            (other,) = set(lanes) - {chosen}
            yield {
                "case": f"{queries} × {reads} over {batch} × {count}, {width} wide, {heads} heads",
                "chosen": chosen, "regret": max(1.0, timing.ratio(chosen, other)),
            } | timing.row()  # fmt: skip


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give the median and the worst regret, and where it is."""
    regrets = [float(row["regret"]) for row in rows]  # type: ignore[arg-type]
    worst = max(rows, key=lambda row: row["regret"], default=None)  # type: ignore[arg-type,return-value]
    return {
        "regret_median": quantile(regrets, 0.5),
        "regret_worst": max(regrets, default=None),
        "worst_case": None if worst is None else worst["case"],
    }
