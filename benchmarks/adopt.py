"""Adopted models: Whisper, BART, Marian and T5 of their published shapes, as they are and adopted.

Every lane writes the same tokens before any is timed. `--equality` asks instead, for every family,
tiny and with random weights, whether settings by settings the same is written.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks import adopt_models, equality
from benchmarks.run import Run, peak_bytes
from benchmarks.same_generation import TIE, tied
from benchmarks.side_by_side import Unequal
from crossattention.adapters import adopted, explain_model

LANES = (None, "projected", "raw", "auto")
FULL = ((1, 1), (1, 4), (1, 5), (4, 1), (4, 4), (4, 5), (8, 1), (8, 4), (8, 5))
LONG = ((1, 1), (1, 4))  # 8,000 rows: stock repeats them for every beam


@dataclass(frozen=True)
class Decoded:
    """One decode: its tokens and scores, seconds of the whole and of its first token, and bytes.

    Attributes:
        cache: of the cross-attention, each tensor once.
        above: the most memory held above what was held before.
    """

    sequences: torch.Tensor
    scores: tuple[torch.Tensor, ...]
    seconds: float
    first: float
    cache: int
    above: int | None


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every shape, batch and number of beams; or compare every family's tokens."""
    if run.equality:
        yield from equality.rows(run)
        return
    for shape in adopt_models.shapes(run):
        counts = ((1, 2),) if run.quick else LONG if shape.rows > 2000 else FULL
        for batch, beams in counts:
            yield {"case": shape.name, "batch": batch, "beams": beams} | _measure(
                run, shape, batch, beams
            )


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give how many times as fast as stock each case is, and the caches' ratio."""
    if not rows or "faster" not in rows[0]:
        return equality.summary(rows)
    found: dict[str, object] = {}
    for row in rows:
        case = f"{row['case']}_batch_{row['batch']}_beams_{row['beams']}"
        for lane, times in row["faster"].items():  # type: ignore[attr-defined]
            found[f"{case}_{lane}"] = times
    return found


def _measure(run: Run, shape: adopt_models.Shape, batch: int, beams: int) -> dict[str, object]:
    model = shape.model()
    given = shape.inputs(batch)
    lanes: dict[str, list[Decoded]] = {}
    for _ in range(1 if run.quick else 3 if batch == 1 else 2):
        for form in LANES:
            with nullcontext() if form is None else adopted(model, form):
                one = _decode(model, given, beams, shape.tokens)
            lanes.setdefault(form or "stock", []).append(one)
            _check(lanes["stock"][0], one, f"{shape.name}, {form or 'stock'}")
    seconds = {lane: median(one.seconds for one in each) for lane, each in lanes.items()}
    written = lanes["stock"][0].sequences.shape[1] - shape.prompt
    chosen = explain_model(model, batch=batch, beams=beams, tokens=shape.tokens, rows=shape.rows)
    return {
        "written": written,
        "seconds": seconds,
        "faster": {
            lane: median(
                stock.seconds / one.seconds for stock, one in zip(lanes["stock"], each, strict=True)
            )
            for lane, each in lanes.items()
            if lane != "stock"
        },
        "first_ms": {lane: 1e3 * min(one.first for one in each) for lane, each in lanes.items()},
        "token_ms": {
            lane: 1e3 * (seconds[lane] - min(one.first for one in each)) / max(written - 1, 1)
            for lane, each in lanes.items()
        },
        "cache_MB": {lane: each[0].cache / 1e6 for lane, each in lanes.items()},
        "above_MB": {
            lane: max(one.above or 0 for one in each) / 1e6 for lane, each in lanes.items()
        },
        "auto": chosen.chosen,
    }


def _decode(model: Any, given: dict[str, Any], beams: int, tokens: int) -> Decoded:
    start = perf_counter()
    adopt_models.write(model, given, beams, 1)
    first = perf_counter() - start
    _trim()
    held = peak_bytes(reset=True)
    start = perf_counter()
    out = adopt_models.write(model, given, beams, tokens)
    seconds = perf_counter() - start
    peak = peak_bytes()
    layers = out.cache.cross_attention_cache.layers
    kept = {each.data_ptr(): each for layer in layers for each in (layer.keys, layer.values)}
    cache = sum(each.numel() * each.element_size() for each in kept.values())
    above = None if peak is None or held is None else peak - held
    return Decoded(out.sequences, out.scores, seconds, first, cache, above)


def _trim() -> None:
    """Give freed memory back, or the next decode's peak would hide in it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _check(stock: Decoded, one: Decoded, name: str) -> None:
    if not torch.equal(stock.sequences, one.sequences) and not tied(stock.scores):
        raise Unequal(f"{name} writes other tokens, and no two scores were within {TIE}")
