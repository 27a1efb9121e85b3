"""Adopted models: Whisper, BART, Marian and T5 of their published shapes, as they are and adopted.

Every round, a model as it is, adopted, and CTranslate2 take turns; an adopted one must write the
same tokens, and keep exactly the bytes it should. `--equality` asks instead, for every family, tiny
and with random weights, whether settings by settings the same is written.
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
from benchmarks.adopt_models import Cell, Shape
from benchmarks.adopt_peer import Peer, peers
from benchmarks.run import Run, peak_bytes
from benchmarks.same_generation import TIE, tied
from benchmarks.side_by_side import Unequal
from crossattention.adapters import adopted, explain_model
from crossattention.adapters.contract import ModelExplanation


@dataclass(frozen=True)
class Decoded:
    """One decode: its tokens and scores, seconds of the whole and of its first token, and bytes.

    Attributes:
        sequences, scores, cache: None and empty where they are not told; the cache is that of the
            cross-attention, each tensor once.
        written: tokens of the longest, after the prompt.
        above: the most memory held above what was held before.
    """

    sequences: torch.Tensor | None
    scores: tuple[torch.Tensor, ...]
    written: int
    seconds: float
    first: float
    cache: int | None
    above: int | None


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every shape, batch and number of beams; or compare every family's tokens."""
    if run.equality:
        yield from equality.rows(run)
        return
    for shape in adopt_models.shapes(run):
        with peers(run, shape) as others:
            for batch, beams in shape.cells:
                row = {"case": shape.name, "batch": batch, "beams": beams}
                yield row | _measure(run, shape, (batch, beams), others)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, object]:
    """Give each case's times stock's and CTranslate2's speed, and its shares of stock's bytes."""
    if not rows or "faster" not in rows[0]:
        return equality.summary(rows)
    found: dict[str, object] = {}
    for row in rows:
        case = f"{row['case']}_batch_{row['batch']}_beams_{row['beams']}"
        for kind in ("faster", "cache_over_stock", "peak_over_stock", "against"):
            found |= {f"{case}_{lane}_{kind}": each for lane, each in row[kind].items()}
    return found


def _measure(run: Run, shape: Shape, cell: Cell, others: dict[str, Peer]) -> dict[str, object]:
    batch, beams = cell
    model, given = shape.model(), shape.inputs(batch)
    sizes = {"batch": batch, "beams": beams, "tokens": shape.tokens, "rows": shape.rows}
    told = explain_model(model, **sizes)
    # The form that "auto" does not take is measured for one source alone.
    ours = [form for form in ("projected", "raw") if batch == 1 or form == told.chosen]
    lanes: dict[str, list[Decoded]] = {}
    for _ in range(1 if run.quick else 3 if cell in shape.again else 1):
        for form in (None, *ours):
            with nullcontext() if form is None else adopted(model, form):
                one = _decode(model, given, beams, shape.tokens)
            lanes.setdefault(form or "stock", []).append(one)
            _check(lanes["stock"][0], one, f"{shape.name}, {form or 'stock'}")
        for name, peer in others.items():
            lanes.setdefault(name, []).append(_ask(peer, cell, shape))
    _check_bytes({lane: each[0].cache for lane, each in lanes.items()}, told, shape.name)
    return _row(lanes, told.chosen, ours)


def _row(lanes: dict[str, list[Decoded]], chosen: str, ours: list[str]) -> dict[str, object]:
    """Say what a case came to: seconds and milliseconds by lane, ratios round by round."""
    seconds = {lane: median(one.seconds for one in each) for lane, each in lanes.items()}
    first = {lane: min(one.first for one in each) for lane, each in lanes.items()}
    above = {lane: max(one.above or 0 for one in each) for lane, each in lanes.items()}
    written = lanes["stock"][0].written
    kept = {lane: lanes[lane][0].cache or 0 for lane in ("stock", *ours)}
    return {
        "written": written,
        "seconds": seconds,
        "faster": {lane: _times(lanes["stock"], lanes[lane]) for lane in lanes if lane != "stock"},
        "against": {
            name: _times(each, lanes[chosen]) for name, each in lanes.items() if name not in kept
        },
        "first_ms": {lane: 1e3 * each for lane, each in first.items()},
        "token_ms": {
            lane: 1e3 * (seconds[lane] - first[lane]) / max(written - 1, 1) for lane in lanes
        },
        "cache_MB": {lane: each / 1e6 for lane, each in kept.items()},
        "cache_over_stock": {lane: kept[lane] / kept["stock"] for lane in ours},
        "above_MB": {lane: each / 1e6 for lane, each in above.items()},
        "peak_over_stock": {lane: above[lane] / above["stock"] for lane in ours if above["stock"]},
        "auto": chosen,
    }


def _times(slow: list[Decoded], fast: list[Decoded]) -> float:
    return median(one.seconds / other.seconds for one, other in zip(slow, fast, strict=True))


def _ask(peer: Peer, cell: Cell, shape: Shape) -> Decoded:
    """Let CTranslate2 decode: it does not tell scores, nor what its cache takes."""
    first = peer.decode(*cell, 1)["seconds"]
    found = peer.decode(*cell, shape.tokens)
    written = max(map(len, found["words"]))
    return Decoded(None, (), written, found["seconds"], first, None, found["above_bytes"])


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
    written = out.sequences.shape[1] - given["decoder_input_ids"].shape[1]
    return Decoded(out.sequences, out.scores, written, seconds, first, cache, above)


def _trim() -> None:
    """Give freed memory back, or the next decode's peak would hide in it."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _check(stock: Decoded, one: Decoded, name: str) -> None:
    assert stock.sequences is not None and one.sequences is not None
    if not torch.equal(stock.sequences, one.sequences) and not tied(stock.scores):
        raise Unequal(f"{name} writes other tokens, and no two scores were within {TIE}")


def _check_bytes(found: dict[str, int | None], told: ModelExplanation, name: str) -> None:
    """Ask that each cache measures what `explain_model` says it does, to the byte."""
    for bill in told.bills:
        if found.get(bill.name, bill.bytes) != bill.bytes:
            raise Unequal(
                f"{name}, {bill.name}: a cache of {found[bill.name]} bytes, not {bill.bytes}"
            )
