from __future__ import annotations

import math
import random

import pytest

from crossattention.attention.fit import Timed, fit
from crossattention.kernels.contract import Cost
from crossattention.kernels.costs import Rate

REAL = {
    "one": Rate(2e-5, 4e10, 3e10, 1e-7, 1e-10),
    "two": Rate(5e-5, 9e10, 1e10, 2e-6, 4e-10),
    "three": Rate(1e-5, 1e10, 6e10, 5e-8, 2e-9),
}
TERMS = ("overhead", "multiply_adds", "bytes", "piece", "score")


def costs(count: int, seed: int) -> list[dict[str, Cost]]:
    """Draw problems in each of which some term stands out."""
    draw = random.Random(seed)

    def cost() -> Cost:
        return Cost(
            int(10 ** draw.uniform(4, 10)), int(10 ** draw.uniform(4, 9)),
            int(10 ** draw.uniform(0, 4)), int(10 ** draw.uniform(2, 8)),
        )  # fmt: skip

    return [{name: cost() for name in REAL} for _ in range(count)]


def timed(costs: list[dict[str, Cost]], factor: float = 1.0) -> list[Timed]:
    return [
        Timed(each, {name: factor * REAL[name].seconds(cost) for name, cost in each.items()})
        for each in costs
    ]


def test_it_recovers_known_rates() -> None:
    found = fit(timed(costs(60, seed=1)))
    for name, real in REAL.items():
        for term in TERMS:
            assert getattr(found[name], term) == pytest.approx(getattr(real, term), rel=0.02), term


def test_outliers_do_not_rule() -> None:
    problems = timed(costs(80, seed=2))
    for number in range(0, 80, 16):
        slow = {name: 30 * seconds for name, seconds in problems[number].seconds.items()}
        problems[number] = Timed(problems[number].costs, slow)
        one = problems[number + 1]
        problems[number + 1] = Timed(one.costs, one.seconds | {"two": 9 * one.seconds["two"]})
    found = fit(problems)
    for name, real in REAL.items():
        for term in ("multiply_adds", "bytes"):
            assert getattr(found[name], term) == pytest.approx(getattr(real, term), rel=0.15)


def test_the_order_comes_out_right_where_the_machine_is_slow_at_times() -> None:
    draw = random.Random(3)
    problems = []
    for each in timed(costs(60, seed=4)):
        slow = math.exp(draw.gauss(0, 0.4))  # all kernels at once
        problems.append(Timed(each.costs, {n: slow * s for n, s in each.seconds.items()}))
    found = fit(problems)
    lost = []
    for each in timed(costs(200, seed=5)):
        estimates = {name: found[name].seconds(cost) for name, cost in each.costs.items()}
        chosen = min(estimates, key=estimates.__getitem__)
        lost.append(each.seconds[chosen] / min(each.seconds.values()))
    assert sorted(lost)[189] < 1.05


def test_a_kernel_that_ran_at_times_is_fitted_from_those() -> None:
    problems = timed(costs(90, seed=6))
    some = [
        Timed(each.costs, {n: s for n, s in each.seconds.items() if n != "two" or k % 3 == 0})
        for k, each in enumerate(problems)
    ]
    found = fit(some)
    assert found["two"].multiply_adds == pytest.approx(REAL["two"].multiply_adds, rel=0.05)
    assert found["one"].multiply_adds == pytest.approx(REAL["one"].multiply_adds, rel=0.05)


def test_what_never_occurs_costs_nothing_to_speak_of() -> None:
    plain = [{"one": Cost(cost["one"].multiply_adds, cost["one"].bytes)} for cost in costs(40, 7)]
    real = Rate(1e-5, 2e10, 1e10, 0.0, 0.0)
    found = fit([Timed(each, {"one": real.seconds(each["one"])}) for each in plain])["one"]
    assert found.piece < 1e-20 and found.score < 1e-20
    assert found.bytes == pytest.approx(1e10, rel=0.02)
