"""The automatic choice as a kernel: for each problem, whichever a table puts at the fewest seconds.

    kernel="auto"   goes by the table that is shipped for this machine's instructions
    kernel=Cheapest(Table.read("mine.json"))   by one that `crossattention tune` wrote

It is given wherever a kernel may be: to `attend`, `explain`, or as the `kernel` of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossattention.attention.choose import cheapest
from crossattention.kernels.contract import Cost, Kernel, Problem, Reading
from crossattention.kernels.costs import SHIPPED, Table


@dataclass(frozen=True)
class Cheapest:
    """Compute with the kernel that a table finds the cheapest of those that accept.

    Attributes:
        table: by which to choose.

    >>> import torch
    >>> from crossattention.attention.attend import attend
    >>> attend(torch.ones(1, 1, 2), torch.ones(1, 3, 2), torch.ones(1, 3, 2), kernel=Cheapest())
    tensor([[[1., 1.]]])
    """

    table: Table = SHIPPED
    name: str = "auto"

    def choose(self, problem: Problem) -> Kernel:
        """Name the kernel that would run.

        >>> import torch
        >>> from crossattention.kernels.contract import Score
        >>> from crossattention.mask import Mask
        >>> x = torch.zeros(1, 1, 1, 2)
        >>> Cheapest().choose(Problem(x, x, x, None, Mask(), Score(1.0), dropout=0.1)).name
        'matmul'
        """
        return cheapest(problem, self.table)

    def refuses(self, problem: Problem) -> list[str]:
        """Refuse nothing: some kernel always accepts."""
        return []

    def cost(self, problem: Problem) -> Cost:
        """Count what the chosen kernel needs."""
        return self.choose(problem).cost(problem)

    def run(self, problem: Problem) -> Reading:
        """Compute with the chosen kernel."""
        return self.choose(problem).run(problem)
