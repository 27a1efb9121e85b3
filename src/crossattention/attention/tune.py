"""Measure this machine: a table of rates, fitted to what each kernel takes on real shapes.

    kernel A, kernel B, kernel C, A, B, C, ...  over one problem, then the next

Kernels take turns, so that a machine that is slow for a moment is slow for all of them, and the
lower quartile of a kernel's turns counts: others on the machine make a turn longer, never shorter.
Nothing here is ever called but by whoever asks for a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import torch

from crossattention.attention.choose import KERNELS
from crossattention.attention.fit import Timed, fit
from crossattention.attention.hidden import run
from crossattention.attention.sample import SAMPLES, Sample
from crossattention.kernels.contract import Kernel, Problem
from crossattention.kernels.costs import DTYPES, Table

TURN = 1.5e-4  # seconds: shorter calls are repeated to fill a turn
LEAST = 5  # turns of each kernel
BEHIND = 8  # a kernel this many times slower than the fastest is no choice: two turns will do
LARGEST = 2**21  # multiply-adds that the definition is asked for: it is slow, and never the choice


def tune(
    seconds: float = 0.35,
    samples: Sequence[Sample] = SAMPLES,
    kernels: Sequence[Kernel] = KERNELS,
    progress: Callable[[int, int], None] | None = None,
) -> Table:
    """Measure kernels, and fit a table to them, with as many threads as torch has.

    Args:
        seconds: about how long the turns of one problem take.
        samples: what is read, in each dtype.
        kernels: those that are timed, where they accept.
        progress: told problems done, and problems in all.
    Returns:
        A table that rates the kernels which ran.

    >>> from crossattention.kernels.matmul import Matmul
    >>> few = [Sample(1, 1, 2, 2, 1, s, 4) for s in (3, 300)]
    >>> list(tune(0.0, few, [Matmul()]).rates[torch.float16])
    ['matmul']
    """
    rates = {}
    with torch.inference_mode():
        for number, dtype in enumerate(DTYPES):
            timed = []
            for sample in samples:
                timed.append(measure(sample.problem(dtype), kernels, seconds))
                if progress is not None:
                    done = number * len(samples) + len(timed)
                    progress(done, len(DTYPES) * len(samples))
            rates[dtype] = fit(timed)
    return Table("measured", rates)


def measure(problem: Problem, kernels: Sequence[Kernel], seconds: float) -> Timed:
    """Time the kernels that accept a problem, in turns.

    >>> list(measure(SAMPLES[0].problem(torch.float32), KERNELS[:1], 0.0).seconds)
    ['reference']
    """
    asked = [kernel for kernel in kernels if not kernel.refuses(problem)]
    costs = {kernel.name: kernel.cost(problem) for kernel in asked}
    kept = [
        kernel
        for kernel in asked
        if kernel.name != "reference" or costs[kernel.name].multiply_adds <= LARGEST
    ]
    once = {kernel.name: min(_turn(kernel, problem, 1) for _ in range(3)) for kernel in kept}
    close = BEHIND * min(once.values(), default=0.0)
    turns: dict[str, list[float]] = {kernel.name: [] for kernel in kept}
    start, rounds = perf_counter(), 0
    while rounds < LEAST or perf_counter() - start < seconds:
        for kernel in kept:
            if rounds < 2 or once[kernel.name] <= close:
                repeats = max(1, round(TURN / once[kernel.name]))
                turns[kernel.name].append(_turn(kernel, problem, repeats))
        rounds += 1
    took = {name: sorted(each)[len(each) // 4] for name, each in turns.items()}
    return Timed({name: costs[name] for name in took}, took)


def _turn(kernel: Kernel, problem: Problem, repeats: int) -> float:
    start = perf_counter()
    for _ in range(repeats):
        run(kernel, problem)
    return (perf_counter() - start) / repeats
