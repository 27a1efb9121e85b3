"""Say which kernel would read, why, and what each would cost, without reading.

    seconds = overhead + multiply_adds·a + bytes·b + pieces·p + scores·w,   from a table

Nothing is computed, so tensors on the "meta" device, which hold no numbers, will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from crossattention.attention.cheapest import Cheapest
from crossattention.attention.choose import KERNELS, choose, seconds
from crossattention.attention.door import enter
from crossattention.errors import NoKernelError
from crossattention.kernels.contract import Kernel, Problem
from crossattention.kernels.costs import SHIPPED, Table
from crossattention.mask import Causal
from crossattention.owner import Owner


@dataclass(frozen=True)
class KernelCost:
    """What one kernel says of a problem; with refusals it does not run it.

    >>> KernelCost("fused", ("it has no soft cap",), 10, 20, 1e-5).name
    'fused'
    """

    name: str
    refusals: tuple[str, ...]
    multiply_adds: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Explanation:
    """What each kernel says of one reading, and which is chosen.

    Attributes:
        kernels: one entry each, in the order of the table.
        chosen: the kernel that runs; None where the one that was named refuses.
        table: the name of the table that the seconds are from.

    >>> print(Explanation((KernelCost("matmul", (), 1680, 2304, 3e-5),), "matmul", "mine.json"))
    matmul      30.0 µs  1,680 multiply-adds  2,304 bytes  chosen
    table: mine.json
    """

    kernels: tuple[KernelCost, ...]
    chosen: str | None
    table: str

    def __str__(self) -> str:
        """Write one line a kernel: time, cost, and whether it is chosen or refuses; the table."""
        lines = []
        for each in self.kernels:
            verdict = "chosen" if each.name == self.chosen else ""
            if each.refusals:
                verdict = f"refuses: {'; '.join(each.refusals)}"
            cost = f"{each.multiply_adds:,} multiply-adds  {each.bytes:,} bytes"
            lines.append(
                f"{each.name:<9} {each.seconds * 1e6:>6.1f} µs  {cost}  {verdict}".rstrip()
            )
        return "\n".join((*lines, f"table: {self.table}"))


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    owner: Owner | Tensor | Sequence[int] | None = None,
    causal: Causal = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    kernel: str | Kernel = "auto",
) -> Explanation:
    """Explain what `attend` would do with the same arguments.

    Arguments as in `attend`.

    Returns:
        Each kernel's refusals, multiply-adds, bytes and estimated seconds, and the choice.

    Raises:
        ContractError: as `attend` does; a named kernel that refuses is explained, not raised.

    >>> import torch
    >>> query, rows = (
    ...     torch.empty(1, 8, 1, 64, device="meta"),
    ...     torch.empty(1, 8, 99, 64, device="meta"),
    ... )
    >>> explain(query, rows, rows, dropout=0.1).chosen
    'matmul'
    """
    problem, _ = enter(
        query, key, value, visible=visible, bias=bias, lengths=lengths, owner=owner,
        causal=causal, softcap=softcap, scale=scale, dropout=dropout,
    )  # fmt: skip
    return explain_problem(problem, kernel)


def explain_problem(problem: Problem, kernel: str | Kernel = "auto") -> Explanation:
    """Explain a checked problem: what `read` would do with it.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.zeros(1, 1, 1, 2)
    >>> explain_problem(Problem(x, x, x, None, Mask(), Score(1.0)), "reference").chosen
    'reference'
    """
    automatic = Cheapest() if isinstance(kernel, str) and kernel == "auto" else kernel
    if isinstance(automatic, Cheapest):
        kernels = tuple(_ask(each, problem, automatic.table) for each in KERNELS)
        return Explanation(kernels, automatic.choose(problem).name, automatic.table.name)
    try:
        chosen = choose(problem, kernel).name
    except NoKernelError:
        chosen = None
    known = KERNELS if isinstance(kernel, str) else (*KERNELS, kernel)
    return Explanation(tuple(_ask(each, problem, SHIPPED) for each in known), chosen, SHIPPED.name)


def _ask(kernel: Kernel, problem: Problem, table: Table) -> KernelCost:
    cost = kernel.cost(problem)
    refusals = tuple(kernel.refuses(problem))
    known = any(kernel is each for each in KERNELS)  # no table knows a kernel of the caller's own
    estimate = seconds(kernel, problem, table) if known else float("nan")
    return KernelCost(kernel.name, refusals, cost.multiply_adds, cost.bytes, estimate)
