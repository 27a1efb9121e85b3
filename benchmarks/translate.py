"""Translation with the bundled model: against CTranslate2 with the same weights, and a Marian.

Greedy search and 4 beams, batches of 32 and of 1. Batch after batch is translated by one after the
other. CTranslate2's float32 tokens are compared with ours first; where they differ, our model says
whether the scores were tied. A Hugging Face Marian of the same size is only timed: it and a model
of ours have random weights, and both write as many tokens as the bundled model did. Lengths must be
forced on both: a search that looks for ends steps until the last beam of the longest sentence has
found one, up to 1.4 times as often as it writes tokens, which a forced one never pays for. Our own
search with weights in half precision is timed too; its ratio is below 1 where it is the faster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.halves import compare_rounded, halves
from benchmarks.marian import Marian
from benchmarks.run import Run, peak_bytes
from benchmarks.same_tokens import compare_tokens
from benchmarks.sentences import sentences
from benchmarks.side_by_side import Timing
from benchmarks.translating import Ours, Theirs, Work
from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.translator import Translator

COMPUTE = ("float32", "int8")
MARIAN_BATCHES = 4  # it is slow: it writes so many, of all lengths


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Compare tokens, then measure each search and batch size."""
    translator = Translator.load()
    config = translator.model.config
    ours, marian = Ours(translator.model), Marian.of(run, config)
    forced = (Ours(EncoderDecoder(config).eval()), marian) if marian else None
    half = halves(run, translator.model)
    texts = sentences(40 if run.quick else 1000)
    sources = [[*translator.tokenizer.encode(text), config.end] for text in texts]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        theirs = {}
        if run.peer("ctranslate2"):
            for compute in COMPUTE:
                made = Theirs.of(translator.model, Path(folder), compute, run.threads)
                theirs[f"CTranslate2 {compute}"] = stack.enter_context(made)
        for beams in (1, 4):
            batches = _batches(sources, 32)
            if theirs:
                first = next(iter(theirs.values()))
                yield compare_tokens(ours, first, batches, beams) | {"beams": beams}
            for lane, work in half.items():
                same = compare_rounded(translator.model, work, batches[::8], beams)
                yield same | {"beams": beams, "lane": lane}
            for size in (32, 1):
                few = sources if size > 1 else sources[:: max(1, len(sources) // 200)]
                yield _row(ours, half, theirs, forced, _batches(few, size), beams)


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give how many times as many tokens a second we write, by search, batch size and peer."""
    found: dict[str, object] = {}
    for row in rows:
        for peer, ratio in row.get("ratio", {}).items():  # type: ignore[attr-defined]
            found[f"batch_{row['batch']}_beams_{row['beams']}_against_{peer}"] = ratio
        if "equal" in row:
            of = f", {row['lane']}" if "lane" in row else ""
            found[f"beams_{row['beams']}_tokens_equal_or_tied{of}"] = row["equal_or_tied"]
    return found


def _row(
    ours: Ours,
    half: dict[str, Ours],
    theirs: dict[str, Theirs],
    forced: tuple[Ours, Marian] | None,
    batches: list[list[list[int]]],
    beams: int,
) -> dict[str, object]:
    """Let all take turns, batch by batch; seconds are of one token: ratios compare rates."""
    lanes: dict[str, Work] = {"ours": ours, **half, **theirs}
    for work in lanes.values():
        work.translate(batches[0], beams)  # warms up
    peak_bytes(reset=True)
    rates: dict[str, list[float]] = {lane: [] for lane in lanes}
    written = dict.fromkeys(lanes, 0)
    for batch in batches:
        for lane, work in lanes.items():
            done = work.translate(batch, beams)
            rates[lane].append(done.seconds / done.tokens)
            written[lane] += done.tokens
    peaks = {"ours": _megabytes(peak_bytes())}
    peaks |= {lane: _megabytes(work.peak) for lane, work in theirs.items()}
    timing = Timing(rates, {})
    row = timing.row() | {"tokens": written}
    ratios = dict(row["ratio"])  # type: ignore[call-overload]
    if forced is not None:
        some = batches[:: -(-len(batches) // MARIAN_BATCHES)]
        ratios["Hugging Face Marian"] = _against(*forced, ours, some, beams)
    return {
        "case": f"batch {len(batches[0])}, beams {beams}",
        "batch": len(batches[0]), "beams": beams, "sentences": sum(map(len, batches)),
        "tokens_a_second": {lane: 1 / timing.median(lane) for lane in lanes},
        "peak_megabytes": peaks,
    } | row | {"ratio": ratios}  # fmt: skip


def _against(
    mine: Ours, marian: Marian, ours: Ours, batches: list[list[list[int]]], beams: int
) -> float:
    """Give how many times as long a Marian takes for a token, pair by pair."""
    seconds: dict[str, list[float]] = {"ours": [], "Marian": []}
    for at, batch in enumerate([batches[0], *batches]):  # the first warms up
        length = round(ours.translate(batch, beams).tokens / len(batch))
        for name, work in (("ours", mine), ("Marian", marian)):
            done = work.translate(batch, beams, length)
            if at:
                seconds[name].append(done.seconds / done.tokens)
    return Timing(seconds, {}).ratio("Marian", "ours")


def _megabytes(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def _batches(sources: list[list[int]], size: int) -> list[list[list[int]]]:
    """Cut into batches of sentences of about one length, the longest first, what is left last."""
    ordered = sorted(sources, key=len, reverse=True)
    return [ordered[at : at + size] for at in range(0, len(ordered), size)]
