"""How fast each kernel is, by dtype: the table from which the automatic choice is made.

    seconds = overhead + multiply_adds / rate + bytes / bandwidth

Shipped, never measured behind the user's back, so all ranks of a job choose alike. Rates are in
multiply-adds per second and bytes per second, measured with two threads of an AVX-512 CPU; what
counts is their ratio.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from crossattention.kernels.contract import Cost


@dataclass(frozen=True)
class Rate:
    """What a kernel costs to start and to run.

    >>> Rate(1e-5, 1e9, 1e9).seconds(Cost(multiply_adds=1000, bytes=0))
    1.1e-05
    """

    overhead: float
    multiply_adds: float
    bytes: float

    def seconds(self, cost: Cost) -> float:
        """Estimate a run's time.

        >>> Rate(0.0, 1e9, 1e9).seconds(Cost(multiply_adds=0, bytes=10**9))
        1.0
        """
        return self.overhead + cost.multiply_adds / self.multiply_adds + cost.bytes / self.bytes


_WIDE = {
    "reference": Rate(1e-4, 2e8, 2e9),
    "matmul": Rate(3e-5, 3e10, 2e10),
    "fused": Rate(2e-5, 2e10, 2e10),
}
_HALF = {
    "reference": Rate(1e-4, 2e8, 2e9),
    "matmul": Rate(4e-5, 3e10, 2e10),
    "fused": Rate(2e-5, 8e9, 2e10),
}


def rate(kernel: str, dtype: torch.dtype) -> Rate:
    """Look up a kernel's rate for a dtype.

    >>> rate("matmul", torch.float32).overhead > 0
    True
    """
    return (_HALF if dtype.itemsize < 4 else _WIDE)[kernel]
