"""Time several ways of doing one thing, side by side: equal first, then in turns A B A B.

    ratio(B, A) = median over rounds of  seconds(B) / seconds(A)

Both seconds of a pair come from the same round, moments apart, so that a machine that others slow
down slows both. Nothing is timed before the results agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

Call = Callable[[], object]

TOLERANCE = {
    torch.float64: 1e-6,
    torch.float32: 2e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
TURN = 1e-3  # seconds: shorter calls are repeated to fill a turn
MOST_ROUNDS = 400


class Unequal(Exception):
    """Two ways of doing one thing gave different results."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call of each lane, one figure a round.

    Attributes:
        seconds: by lane; all lanes have as many rounds.
        left_out: lanes that were far too slow to be timed in turns, with the seconds of one call.
    """

    seconds: Mapping[str, Sequence[float]]
    left_out: Mapping[str, float]

    def median(self, lane: str) -> float:
        """Give the median seconds of a lane."""
        return statistics.median(self.seconds[lane])

    def spread(self, lane: str) -> float:
        """Give the distance between the quartiles, as a share of the median."""
        ordered = sorted(self.seconds[lane])
        quarter = len(ordered) // 4
        return (ordered[-1 - quarter] - ordered[quarter]) / statistics.median(ordered)

    def ratio(self, lane: str, over: str) -> float:
        """Give how many times as long as `over` a lane takes, pair by pair."""
        pairs = zip(self.seconds[lane], self.seconds[over], strict=True)
        return statistics.median(one / other for one, other in pairs)

    def difference(self, lane: str, over: str) -> float:
        """Give how many seconds longer than `over` a lane takes, pair by pair."""
        pairs = zip(self.seconds[lane], self.seconds[over], strict=True)
        return statistics.median(one - other for one, other in pairs)

    def fastest(self, lanes: Iterable[str]) -> str:
        """Name the fastest of some lanes, by the median."""
        return min((lane for lane in lanes if lane in self.seconds), key=self.median)

    def row(self) -> dict[str, object]:
        """Give what a row of a table says of it: ratios are over the first lane."""
        first = next(iter(self.seconds))
        return {
            "milliseconds": {lane: 1e3 * self.median(lane) for lane in self.seconds},
            "spread": {lane: self.spread(lane) for lane in self.seconds},
            "ratio": {lane: self.ratio(lane, first) for lane in self.seconds if lane != first},
            "rounds": len(self.seconds[first]),
            "left_out_milliseconds": {lane: 1e3 * one for lane, one in self.left_out.items()},
        }


def compare(
    lanes: Mapping[str, Call],
    seconds: float,
    *,
    least: int = 3,
    may_drop: Iterable[str] = (),
    tolerance: float | None = None,
) -> Timing:
    """Check that all lanes agree with the first, then time them in turns.

    Args:
        lanes: what is called; each returns a tensor or a tuple of tensors.
        seconds: about how long the turns may take in all.
        least: rounds that are timed even where they take longer.
        may_drop: lanes that are not timed in turns where one call takes five times the fastest's.
        tolerance: largest difference, as a share of the largest number; None: by dtype.
    Raises:
        Unequal: results that do not agree; nothing was timed.
    """
    check_equal({lane: call() for lane, call in lanes.items()}, tolerance)  # warms up, too
    once = {lane: _seconds(call, 1) for lane, call in lanes.items()}
    slow = 5 * min(once.values())
    left_out = {lane: once[lane] for lane in may_drop if lane in once and once[lane] > slow}
    kept = {lane: call for lane, call in lanes.items() if lane not in left_out}
    return Timing(take_turns(kept, once, seconds, least), left_out)


def take_turns(
    lanes: Mapping[str, Call], once: Mapping[str, float], seconds: float, least: int
) -> dict[str, list[float]]:
    """Call lane after lane, round after round; give the seconds of one call, by lane and round."""
    repeats = {lane: max(1, math.ceil(TURN / max(once[lane], 1e-7))) for lane in lanes}
    for lane, call in lanes.items():  # once more, now as often as it will be timed
        if repeats[lane] > 1:
            _seconds(call, repeats[lane])
    taken: dict[str, list[float]] = {lane: [] for lane in lanes}
    start, rounds = perf_counter(), 0
    while rounds < least or (rounds < MOST_ROUNDS and perf_counter() - start < seconds):
        for lane, call in lanes.items():
            taken[lane].append(_seconds(call, repeats[lane]))
        rounds += 1
    return taken


def check_equal(results: Mapping[str, object], tolerance: float | None = None) -> None:
    """Compare every lane's result with the first's; raise `Unequal` where they differ."""
    (first, right), *others = results.items()
    for lane, result in others:
        for mine, theirs in zip(_tensors(right), _tensors(result), strict=True):
            if mine.shape != theirs.shape:
                shapes = f"{list(mine.shape)} and {list(theirs.shape)}"
                raise Unequal(f"{first} and {lane} give shapes {shapes}")
            allowed = TOLERANCE[mine.dtype] if tolerance is None else tolerance
            size = mine.double().abs().max().item()
            apart = (mine.double() - theirs.double()).abs().max().item()
            if not apart <= allowed * size:  # so that NaN differs
                raise Unequal(
                    f"{first} and {lane} differ by {apart:.3g} of {size:.3g}, "
                    f"more than {allowed:.0e} of it"
                )


def geometric_mean(figures: Iterable[float]) -> float | None:
    """Give the geometric mean, None of nothing."""
    kept = list(figures)
    return statistics.geometric_mean(kept) if kept else None


def quantile(figures: Iterable[float], share: float) -> float | None:
    """Give the figure that a share of all do not exceed, None of nothing."""
    ordered = sorted(figures)
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None


def _seconds(call: Call, repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        call()
    return (perf_counter() - start) / repeats


def _tensors(result: object) -> tuple[Tensor, ...]:
    found = tuple(result) if isinstance(result, tuple | list) else (result,)
    if not all(isinstance(each, Tensor) for each in found):
        raise TypeError(f"a lane must return tensors, got {type(result).__name__}")
    return found
