"""Learned queries: rows that belong to a layer instead of coming from a stream.

    queries[b, n] = weight[n]

They ask the same of every memory, so what they ask is computed once and shared by the batch.
Papers: Lee et al. 2019, "Set Transformer" (seed vectors); Carion et al. 2020, "DETR" (object
queries); Jaegle et al. 2021, "Perceiver" (latents).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.argument import check_size


class LearnedQueries(nn.Module):
    """Hold n learned query rows, and give a view of them to each sequence of a batch.

    Args:
        queries: n.
        width: c.

    `weight` `[n, c]` begins normal with a standard deviation of 0.02.

    Differs from repeating a parameter: the rows are stored once, whatever the batch.

    >>> rows = LearnedQueries(queries=3, width=8)(batch=5)
    >>> rows.shape, rows.stride()
    (torch.Size([5, 3, 8]), (0, 8, 1))
    """

    def __init__(self, queries: int, width: int) -> None:
        super().__init__()
        check_size("queries", queries, 1, "pass how many rows are learned")
        check_size("width", width, 1, "pass the width of the query stream")
        self.weight = nn.Parameter(torch.randn(queries, width) * 0.02)

    def forward(self, batch: int) -> Tensor:
        """Give the rows to `batch` sequences, [n, c] -> [b, n, c], without a copy."""
        check_size("batch", batch, 0, "pass how many sequences ask")
        return self.weight.expand(batch, -1, -1)

    def extra_repr(self) -> str:
        """Name the sizes, as torch prints a module."""
        queries, width = self.weight.shape
        return f"queries={queries}, width={width}"
