"""How many bytes a memory keeps: projected for every layer, or raw, with one beam and with five.

Measured from real tensors where the case is small, computed by `explain` for all, and equal where
both exist. `copied` is what copying projected rows for each beam would keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

import crossattention as xa
from benchmarks.run import Run
from benchmarks.side_by_side import Unequal
from crossattention.nn.explain import Reads, explain_forms

CASES = {  # rows, width, heads, layers
    "Whisper base": (1500, 512, 8, 6),
    "BART-large": (1024, 1024, 16, 12),
    "Whisper large": (1500, 1280, 20, 32),
    "T5-base": (25_000, 768, 12, 12),
}
MEASURED = ("Whisper base", "BART-large")


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Count each shape, each number of beams and each form."""
    for case, (s, width, heads, layers) in CASES.items():
        for beams in (1, 5):
            reads = Reads(queries=1, memory=s, width=width, heads=heads, beams=beams, layers=layers)
            computed = {form.name: form.bytes for form in explain_forms(reads).forms}
            for form, kept in computed.items():
                measured = None
                if case in MEASURED[: 1 if run.quick else None]:
                    measured = _measure(s, width, heads, layers, beams, form)
                    if measured != kept:
                        raise Unequal(f"{case}, {form}: explained {kept}, kept {measured} bytes")
                yield {
                    "case": case, "beams": beams, "form": form, "computed_bytes": kept,
                    "measured_bytes": measured, "copied_bytes": computed["projected"] * beams,
                }  # fmt: skip


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give how many times as much copying for five beams would keep, by shape and form."""
    found: dict[str, object] = {}
    for row in rows:
        if row["beams"] == 5:
            copied, kept = row["copied_bytes"], row["computed_bytes"]
            assert isinstance(copied, int) and isinstance(kept, int)
            found[f"{row['case']}_5_beams_copied_over_{row['form']}"] = copied / kept
    return found


def _measure(s: int, width: int, heads: int, layers: int, beams: int, form: str) -> int:
    with torch.inference_mode():
        memory = xa.Memory.of(torch.randn(1, s, width))
        for _ in range(layers):
            layer = xa.CrossAttention(width, heads).eval()
            memory = layer.remember(memory, form=form)
        memory = memory.without_rows() if form == "projected" else memory
        return memory.shared_by(beams).nbytes
