"""Choose the kernel: the cheapest that accepts, or the one that was named, or an error.

A named kernel never falls back: it runs, or its refusals are raised.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

import torch
from torch.autograd import forward_ad

from crossattention.errors import ContractError, NoKernelError, complaint, describe
from crossattention.kernels.contract import Kernel, Problem
from crossattention.kernels.costs import SHIPPED, Table
from crossattention.kernels.fused import Fused
from crossattention.kernels.matmul import Matmul
from crossattention.kernels.native import Native
from crossattention.kernels.reference import Reference

KERNELS: tuple[Kernel, ...] = (Reference(), Matmul(), Fused(), Native())
MOST = 4096  # traits whose choices are kept at a time
T = TypeVar("T")
_CHOICES: dict[Hashable, Kernel] = {}


def choose(problem: Problem, kernel: str | Kernel = "auto") -> Kernel:
    """Choose a kernel for a problem.

    Args:
        problem: what is to be read, checked.
        kernel: "auto", the name of a kernel, or a kernel.
    Raises:
        NoKernelError: the named kernel refuses the problem, with every reason.
        ContractError: no kernel has that name.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.zeros(1, 1, 1, 2)
    >>> choose(Problem(x, x, x, None, Mask(), Score(1.0)), "reference").name
    'reference'
    """
    if isinstance(kernel, str) and kernel == "auto":
        return _known(problem)
    named = by_name(kernel) if isinstance(kernel, str) else kernel
    verbs = (getattr(named, verb, None) for verb in ("refuses", "cost", "run"))
    if (
        isinstance(named, type)
        or not isinstance(getattr(named, "name", None), str)
        or not all(callable(verb) for verb in verbs)
    ):
        do = "pass a name, or an object with a name, refuses, cost and run"
        raise ContractError(complaint("kernel", "a name or a kernel", describe(kernel), do))
    refusals = named.refuses(problem)
    if refusals:
        raise NoKernelError(
            f"kernel `{named.name}` was asked for, but: {'; '.join(refusals)}. "
            'Pass kernel="auto", or drop what it refuses.'
        )
    return named


def _known(problem: Problem) -> Kernel:
    """Look the choice up, or make it: it hangs on a problem's traits and on nothing else."""
    if is_recorded():
        return cheapest(problem)
    traits = _traits(problem)
    chosen = _CHOICES.get(traits)
    if chosen is None:
        chosen = keep(_CHOICES, traits, cheapest(problem))
    return chosen


def keep(found: dict[Hashable, T], traits: Hashable, made: T) -> T:
    """Keep what was made for some traits, and give it; of too many, all before are forgotten.

    >>> keep({}, (2, 3), "matmul")
    'matmul'
    """
    if len(found) >= MOST:
        found.clear()
    found[traits] = made
    return made


def is_recorded() -> bool:
    """Whether a graph or a transform follows what is computed, in which sizes may be symbols.

    >>> is_recorded()
    False
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.maybe_current_level() is not None
        or forward_ad._current_level >= 0
    )


def _traits(problem: Problem) -> Hashable:
    """List all that a refusal or a cost hangs on."""
    query, key, value, owner, mask, score, dropout, wants_lse = problem
    visible, bias, is_grad_enabled = mask.visible, mask.bias, torch.is_grad_enabled()
    return (
        query.shape, key.shape, value.shape, query.dtype, key.dtype, value.dtype, query.device,
        None if owner is None else owner.per_memory,
        mask.rows is mask.lengths is None, None if visible is None else visible.shape,
        score.softcap is None, dropout > 0, wants_lse,
        None if bias is None else (bias.shape, bias.dtype, is_grad_enabled and bias.requires_grad),
        is_grad_enabled and problem.wants_gradient,
    )  # fmt: skip


def cheapest(problem: Problem, table: Table = SHIPPED) -> Kernel:
    """Take the kernel that a table puts at the fewest seconds, of those that accept.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.zeros(1, 1, 1, 2)
    >>> cheapest(Problem(x, x, x, None, Mask(), Score(1.0), dropout=0.1)).name
    'matmul'
    """
    best, least = KERNELS[0], float("inf")
    for kernel in KERNELS:  # a loop, as torch.compile does not trace min with a key
        if not kernel.refuses(problem):
            estimate = seconds(kernel, problem, table)
            if estimate < least:
                best, least = kernel, estimate
    return best


def by_name(name: str) -> Kernel:
    """Find a kernel by its name.

    >>> by_name("matmul").name
    'matmul'
    """
    for kernel in KERNELS:
        if kernel.name == name:
            return kernel
    names = ", ".join(f'"{kernel.name}"' for kernel in KERNELS)
    raise ContractError(complaint("kernel", f'"auto" or one of {names}', repr(name), "choose one"))


def seconds(kernel: Kernel, problem: Problem, table: Table = SHIPPED) -> float:
    """Estimate a kernel's time from a table; NaN for a kernel that it does not know.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.zeros(1, 1, 1, 2)
    >>> seconds(by_name("matmul"), Problem(x, x, x, None, Mask(), Score(1.0))) > 0
    True
    """
    return table.seconds(kernel.name, problem.query.dtype, kernel.cost(problem))
