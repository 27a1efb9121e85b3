"""Fit the rates of kernels to what they took, so that their order comes out right.

    minimise  sum over problems p and kernels k of  rho(w·(r_pk - r_p))  +  rho(share·r_p)
    r_pk = log(estimated seconds) - log(measured seconds),   r_p = their mean over kernels

What all kernels share in a problem, such as a machine that was slow just then, says nothing about
which is the fastest, so it counts a third. Kernels far behind the best weigh little, and rho, a
square that turns into a line, keeps outliers from ruling. Rates are positive, as their logarithms
are what is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.kernels.contract import Cost
from crossattention.kernels.costs import Rate

SHARE = 0.3  # weight of what all kernels have in common
TURNS = 0.2  # where rho turns from a square into a line: 20%
STEPS = 500
LEAST = 1e-30  # seconds of one of anything: a term that a few timings do not show may vanish


@dataclass(frozen=True)
class Timed:
    """One problem, by the kernels that ran it: what each needs, and the seconds that it took."""

    costs: Mapping[str, Cost]
    seconds: Mapping[str, float]


def fit(timed: Sequence[Timed]) -> dict[str, Rate]:
    """Fit a rate to each kernel that was timed.

    >>> costs = [Cost(10**9, 10**6), Cost(10**6, 10**9), Cost(10, 10), Cost(10**8, 10**8)]
    >>> real = Rate(1e-5, 1e10, 2e9, 0.0, 0.0)
    >>> found = fit([Timed({"mine": x}, {"mine": real.seconds(x)}) for x in costs])["mine"]
    >>> round(found.multiply_adds / 1e10, 2), round(found.bytes / 2e9, 2)
    (1.0, 1.0)
    """
    names = sorted({name for each in timed for name in each.seconds})
    needs = torch.stack([_needs(each, names) for each in timed])  # [p, k, 5]
    took = torch.tensor(
        [[each.seconds.get(name, math.nan) for name in names] for each in timed],
        dtype=torch.float64,
    )  # [p, k]
    ran = ~took.isnan()
    took = took.masked_fill(~ran, math.inf)
    weight = (took.amin(1, keepdim=True) / took).sqrt()  # 0 where it did not run
    took = took.masked_fill(~ran, 1.0)
    with torch.inference_mode(False), torch.enable_grad():
        logs = _descend(needs.clone(), took.clone(), weight.clone(), ran.clone())
    found = logs.exp().clamp_min(LEAST)
    return {name: _rate(found[k].tolist()) for k, name in enumerate(names)}


def _needs(timed: Timed, names: Sequence[str]) -> Tensor:
    """List the terms of each kernel's seconds, one call first; ones where it did not run."""
    rows = [[1.0] * 5 for _ in names]
    for k, name in enumerate(names):
        if name in timed.seconds:
            cost = timed.costs[name]
            rows[k] = [1, cost.multiply_adds, cost.bytes, cost.pieces, cost.scores]
    return torch.tensor(rows, dtype=torch.float64)  # [k, 5]


def _descend(needs: Tensor, took: Tensor, weight: Tensor, ran: Tensor) -> Tensor:
    """Find the logarithms [k, 5] of each term's seconds."""
    logs = _start(needs, took, ran).requires_grad_()
    search = torch.optim.LBFGS([logs], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        apart = (needs * logs.exp()).sum(-1).log() - took.log()  # [p, k, 5] -> [p, k]
        common = (weight * apart).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
        found = _rho(weight * (apart - common)).sum() + _rho(SHARE * common).sum()
        found.backward()
        return found

    search.step(loss)
    return logs.detach()


def _start(needs: Tensor, took: Tensor, ran: Tensor) -> Tensor:
    """Let each term take a fifth of the seconds of a typical problem."""
    counts = ran[..., None] & (needs > 0)
    each = (took[..., None] / (5 * needs)).where(counts, math.nan)
    typical = each.nanmedian(0).values  # [p, k, 5] -> [k, 5]
    typical[:, 0] = took.where(ran, math.inf).amin(0) / 2  # no call is shorter than its overhead
    return typical.nan_to_num(nan=1e-30).log()


def _rho(apart: Tensor) -> Tensor:
    return ((1 + (apart / TURNS) ** 2).sqrt() - 1) * 2


def _rate(terms: Sequence[float]) -> Rate:
    overhead, multiply_add, byte, piece, score = terms
    return Rate(overhead, 1 / multiply_add, 1 / byte, piece, score)
