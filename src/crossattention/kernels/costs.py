"""How fast each kernel is, by dtype: the table from which the automatic choice is made.

    seconds = overhead + multiply_adds / rate + bytes / bandwidth + pieces · each

Shipped, never measured behind the user's back, so all ranks of a job choose alike. The figures were
fitted to the kernels, timed side by side on 15 shapes (26 for the native one) with and without
lengths, two threads of an AVX-512 CPU; only their ratios count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from crossattention.kernels.contract import Cost


@dataclass(frozen=True)
class Rate:
    """What a kernel costs to start and to run.

    Attributes:
        overhead: seconds of one call.
        multiply_adds, bytes: per second.
        piece: seconds of one separate piece of work.

    >>> Rate(0.5, 1e9, 1e9, 0.25).seconds(Cost(multiply_adds=0, bytes=0, pieces=2))
    1.0
    """

    overhead: float
    multiply_adds: float
    bytes: float
    piece: float

    def seconds(self, cost: Cost) -> float:
        """Estimate a run's time.

        >>> Rate(0.0, 1e9, 1e9, 0.0).seconds(Cost(multiply_adds=0, bytes=10**9))
        1.0
        """
        work = cost.multiply_adds / self.multiply_adds + cost.bytes / self.bytes
        return self.overhead + work + cost.pieces * self.piece


_REFERENCE = Rate(1e-4, 2e8, 2e9, 0.0)
_WIDE = {
    "reference": _REFERENCE,
    "matmul": Rate(2.8e-5, 2.0e10, 2.5e10, 0.8e-6),
    "fused": Rate(2.2e-5, 2.8e10, 2.6e10, 2.0e-6),
    "native": Rate(2.0e-5, 7.4e10, 5.1e10, 0.2e-6),
}
_TABLE = {
    torch.bfloat16: {
        "reference": _REFERENCE,
        "matmul": Rate(3.3e-5, 2.1e10, 2.4e10, 0.7e-6),
        "fused": Rate(2.3e-5, 3.7e10, 7.3e9, 2.2e-6),
        "native": Rate(2.0e-5, 8.4e10, 4.8e10, 0.3e-6),
    },
    torch.float16: {
        "reference": _REFERENCE,
        "matmul": Rate(3.2e-5, 1.6e10, 2.3e10, 4.1e-6),
        "fused": Rate(4.6e-5, 1.1e10, 4.6e9, 3.2e-6),
        "native": Rate(2.0e-5, 4.8e10, 2.8e10, 0.4e-6),
    },
}


def rate(kernel: str, dtype: torch.dtype) -> Rate:
    """Look up a kernel's rate for a dtype; a kernel that is not in the table is an error.

    >>> rate("matmul", torch.float32).overhead > 0
    True
    """
    return _TABLE.get(dtype, _WIDE)[kernel]
