from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from crossattention.attention import tune as module
from crossattention.attention.choose import KERNELS
from crossattention.attention.sample import SAMPLES, Sample
from crossattention.attention.tune import LARGEST, measure, tune
from crossattention.kernels.contract import Problem, Reading
from crossattention.kernels.costs import DTYPES
from crossattention.kernels.matmul import Matmul
from crossattention.kernels.native.library import absent
from crossattention.kernels.reference import Reference

FEW = tuple(Sample(*sizes) for sizes in (
    (1, 1, 2, 2, 1, 7, 4), (2, 3, 4, 2, 1, 11, 8, "lengths"), (1, 1, 2, 2, 5, 64, 16, "bias"),
    (3, 1, 2, 1, 2, 300, 8), (1, 1, 1, 1, 50, 60, 32),
))  # fmt: skip


class Clock:
    """A clock that moves when a kernel runs, by what that kernel is said to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(Matmul):
    """A kernel that takes known seconds."""

    def __init__(self, name: str, clock: Clock, seconds: Iterator[float]) -> None:
        super().__init__(name)
        object.__setattr__(self, "_taken", (clock, seconds))

    def run(self, problem: Problem) -> Reading:
        clock, seconds = self._taken  # type: ignore[attr-defined]
        clock.now += next(seconds)
        return Reading(problem.query)


def steady(seconds: float) -> Iterator[float]:
    while True:
        yield seconds


def bumpy(seconds: float) -> Iterator[float]:
    """Be disturbed in half of the turns."""
    while True:
        yield from (seconds, 9 * seconds)


def test_a_table_of_this_machine() -> None:
    told: list[tuple[int, int]] = []
    table = tune(0.001, FEW, progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 15) for done in range(1, 16)]
    names = {kernel.name for kernel in KERNELS} - ({"native"} if absent() else set())
    assert set(table.rates) == set(DTYPES)
    for rates in table.rates.values():
        assert set(rates) == names
        for rate in rates.values():
            assert rate.overhead > 0 and math.isfinite(rate.multiply_adds + rate.bytes)


def test_it_asks_nothing_of_grad_mode_or_of_the_generator() -> None:
    state = torch.random.get_rng_state()
    with torch.enable_grad():
        tune(0.0, FEW[:2], [Matmul()])
        assert torch.is_grad_enabled()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_disturbed_turns_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    kernels = [Timed("a", clock, steady(1e-3)), Timed("b", clock, bumpy(2e-3))]
    found = measure(FEW[0].problem(torch.float32), kernels, 0.5)
    assert found.seconds == pytest.approx({"a": 1e-3, "b": 2e-3})


def test_a_kernel_far_behind_gets_two_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", clock)
    kernels = [Timed("a", clock, steady(1e-3)), Timed("b", clock, steady(1.0))]
    found = measure(FEW[0].problem(torch.float32), kernels, 0.5)
    assert found.seconds == pytest.approx({"a": 1e-3, "b": 1.0})
    assert clock.now < 6.0  # three to warm up, two turns


def test_the_definition_is_asked_for_little_only() -> None:
    problems = [sample.problem(torch.float32) for sample in SAMPLES]
    small = [each for each in problems if Reference().cost(each).multiply_adds <= LARGEST]
    assert 4 <= len(small) < len(problems)
    large = next(each for each in problems if Reference().cost(each).multiply_adds > LARGEST)
    assert set(measure(large, [Reference(), Matmul()], 0.0).seconds) == {"matmul"}


def test_samples_are_what_they_say() -> None:
    sample = Sample(3, 2, 4, 2, 5, 7, 8, "lengths")
    problem = sample.problem(torch.bfloat16)
    assert problem.sizes == (6, 3, 4, 2, 5, 7, 8, 8)
    assert problem.owner is not None and problem.owner.index.tolist() == [0, 0, 1, 1, 2, 2]
    assert problem.mask.lengths is not None and problem.mask.lengths.tolist() == [7, 5, 3]
    biased = Sample(1, 1, 4, 4, 5, 7, 8, "bias").problem(torch.float16).mask.bias
    assert biased is not None and (biased.shape, biased.dtype) == ((1, 4, 5, 7), torch.float16)
    assert {each.mask for each in SAMPLES} == {"none", "lengths", "bias"}
    assert 35 <= len(SAMPLES) <= 50 and len(set(SAMPLES)) == len(SAMPLES)
