"""Averages are mapped alike whichever side of the product they stand on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crossattention.kernels.contract import Reading
from crossattention.nn.raw import map_average


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("b", [1, 2, 7, 11])  # outputs of a group are 7: rows are few, then many
@pytest.mark.parametrize("memory_heads", [3, 1])
@pytest.mark.parametrize("queries", [1, 2])
def test_few_rows_and_many(queries: int, memory_heads: int, b: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    value = nn.Linear(5, memory_heads * 7).to(dtype)
    average = torch.randn(b, 3, queries, 5, dtype=dtype, requires_grad=True)
    weight, bias = value.weight.view(memory_heads, 7, 5), value.bias.view(memory_heads, 1, 7)
    heads = [head * memory_heads // 3 for head in range(3)]
    wanted = torch.stack([average[:, i] @ weight[g].T + bias[g] for i, g in enumerate(heads)], 1)
    given = (average, *value.parameters())
    for is_asked in (True, False):  # for the weight's gradient
        value.weight.requires_grad_(is_asked)
        found = map_average(Reading(average), value, memory_heads, None)
        torch.testing.assert_close(found, wanted)
        # Rows that lie otherwise would make torch copy the output projection for each of them.
        assert found.transpose(1, 2).flatten(2).is_contiguous()
    value.weight.requires_grad_()
    found = map_average(Reading(average), value, memory_heads, None)
    pairs = (torch.autograd.grad(each.sin().sum(), given) for each in (found, wanted))
    for mine, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(
            mine, theirs, atol=5e-2 if dtype is torch.bfloat16 else 1e-12, rtol=5e-2
        )
