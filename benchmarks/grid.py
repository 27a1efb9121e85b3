"""The grid: `attend` against torch's fused call and two matrix products, over real shapes.

Each of our own kernels is timed beside "auto", whose regret is auto's time over the best one's.
Beams: torch's fused call is given the memory both copied for each beam, as decoders do, and with
beams folded into query rows; the better one counts. One more row for each dtype reads a memory of
four times the last-level cache, beside a plain streaming read of as many bytes, and one reads
between torch's linear layers, as a decoder's step does: two thread pools would fight there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.reading import MASKS, Reading
from benchmarks.run import Run, last_level_cache
from benchmarks.shapes import FEW, QUICK, SHAPES, Shape
from benchmarks.side_by_side import (
    Call,
    Timing,
    check_equal,
    compare,
    geometric_mean,
    quantile,
    take_turns,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
STREAMS = ("sum", "dot")


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every shape with every dtype and mask, then the streams."""
    with torch.inference_mode():
        for dtype in DTYPES:
            yield _stream(run, dtype)
            yield _between(run, dtype)
        for shape in QUICK if run.quick else SHAPES:
            for dtype in DTYPES:
                for mask in MASKS:
                    yield _row(run, Reading.of(shape, dtype, mask))


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give what the rows come to: geometric means, regrets, and shares of a streaming read."""
    grid = [row for row in rows if row["kind"] not in ("stream", "step")]
    found: dict[str, object] = {}
    for dtype in (_name(each) for each in DTYPES):
        few = [row for row in grid if row["kind"] in FEW and row["dtype"] == dtype]
        found[f"few_queries_{dtype}"] = geometric_mean(_numbers(few, "against_better"))
    others = _numbers([row for row in grid if row["kind"] not in FEW], "against_fused")
    found["other_rows_geometric_mean"] = geometric_mean(others)
    found["other_rows_least"] = min(others, default=None)
    regrets = _numbers(grid, "regret")
    found |= {"regret_median": quantile(regrets, 0.5), "regret_95th": quantile(regrets, 0.95)}
    for row in rows:
        if row["kind"] == "stream":
            found[f"stream_share_{row['dtype']}"] = row["share"]
        if row["kind"] == "step":
            found[f"between_linear_layers_{row['dtype']}"] = row["against_better"]
    return found


def _row(run: Run, reading: Reading) -> dict[str, object]:
    own = {name: partial(reading.attend, name) for name in reading.kernels}
    peers: dict[str, Call] = {"fused call": reading.fused, "products": reading.products}
    if reading.shape.beams > 1:
        peers["copied"] = reading.fused_copied
    lanes = {"auto": partial(reading.attend, "auto")} | peers | own
    timing = compare(lanes, run.seconds(0.2), least=3, may_drop=(*own, "products", "copied"))
    better = timing.fastest(peers)
    best = timing.fastest(own) if any(name in timing.seconds for name in own) else "auto"
    fused = timing.fastest(("fused call", "copied"))
    return {
        "case": str(reading.shape), "kind": reading.shape.kind, "dtype": _name(reading.dtype),
        "mask": reading.mask, "chosen": reading.explained.chosen, "best": best,
        "regret": timing.ratio("auto", best), "against_fused": timing.ratio(fused, "auto"),
        "against_better": timing.ratio(better, "auto"), "better": better,
    } | timing.row()  # fmt: skip


def _stream(run: Run, dtype: torch.dtype) -> dict[str, object]:
    """Read more than any cache holds, beside a sum over, or a dot product of, as many bytes."""
    each = (2**22 if run.quick else 4 * last_level_cache()) // 2  # bytes of keys, and of values
    m, h, d = 4, 8, 64
    s = -(-each // (m * h * d * dtype.itemsize))
    reading = Reading.of(Shape("stream", m, h, 1, s, d), dtype, "none")
    halves = torch.ones(2, reading.key.nbytes // 4)
    lanes: dict[str, Call] = {"auto": partial(reading.attend, "auto")}
    plain = {"sum": partial(_sum, halves), "dot": partial(_dot, halves)}
    check_equal({"auto": reading.attend("auto"), "products": reading.products()})
    for call in plain.values():
        call()  # warms up; what it gives is no reading, so there is nothing to compare
    each_once = dict.fromkeys(lanes | plain, 1.0)
    timing = Timing(take_turns(lanes | plain, each_once, run.seconds(4.0), 5), {})
    best = timing.fastest(STREAMS)
    share = 1 / timing.ratio("auto", best)
    gigabytes = 2 * reading.key.nbytes / timing.median(best) / 1e9
    return {
        "case": str(reading.shape), "kind": "stream", "dtype": _name(dtype), "mask": "none",
        "chosen": reading.explained.chosen, "share": share,
        "streaming_gigabytes_a_second": gigabytes,
    } | timing.row()  # fmt: skip


def _between(run: Run, dtype: torch.dtype) -> dict[str, object]:
    """Project a step's queries, read, project what was read, twelve times over."""
    reading = Reading.of(Shape("step", 8, 8, 1, 500), dtype, "none")
    width = reading.shape.heads * reading.shape.width
    rows, weight = torch.randn(8, 1, width).to(dtype), torch.eye(width).to(dtype)

    def step(read: Callable[[Reading], Tensor]) -> Tensor:
        stream = rows
        for _ in range(12):
            query = F.linear(stream, weight).unflatten(-1, (8, -1)).transpose(1, 2)
            found = read(replace(reading, query=query))
            stream = F.linear(found.transpose(1, 2).flatten(2), weight)
        return stream

    reads = {"auto": lambda each: each.attend("auto"), "fused call": Reading.fused}
    lanes = {name: partial(step, read) for name, read in reads.items()}
    lanes["products"] = partial(step, Reading.products)
    timing = compare(lanes, run.seconds(2.0), tolerance=0.05)
    better = timing.fastest(("fused call", "products"))
    return {
        "case": str(reading.shape), "kind": "step", "dtype": _name(dtype), "mask": "none",
        "chosen": reading.explained.chosen, "better": better,
        "against_better": timing.ratio(better, "auto"),
    } | timing.row()  # fmt: skip


def _sum(halves: Tensor) -> Tensor:
    return halves.sum()


def _dot(halves: Tensor) -> Tensor:
    return torch.dot(halves[0], halves[1])


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _numbers(rows: Sequence[dict[str, object]], name: str) -> list[float]:
    return [float(row[name]) for row in rows]  # type: ignore[arg-type]
