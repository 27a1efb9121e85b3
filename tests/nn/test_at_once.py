"""Rows that are read at once give what a memory gives, or None where it takes one."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

import crossattention as xa
from crossattention.nn import CrossAttention, NullRow
from crossattention.nn.at_once import plan_at_once


def made(**options: object) -> CrossAttention:
    torch.manual_seed(0)
    layer = CrossAttention(12, 4, memory_width=5, **options).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer.eval()


@pytest.mark.parametrize("memory_heads", [4, 2])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("grad", [True, False])
def test_it_equals_a_memory(grad: bool, softcap: float | None, memory_heads: int) -> None:
    layer = made(memory_heads=memory_heads)
    layer.softcap = softcap
    query, rows = torch.randn(1, 4, 2, 3).double(), torch.randn(3, 7, 5).double()
    inputs = [
        rows.requires_grad_(),
        *layer.key_projection.parameters(),
        layer.value_projection.bias,
    ]
    with nullcontext() if grad else torch.no_grad():
        plan = plan_at_once(layer, query, rows, "raw")
        found = plan.read(layer, rows)
        memory = layer.remember(rows, form="raw")
        wanted = layer.read(query.expand(3, -1, -1, -1), memory)
    assert found.lse is found.reads is None
    torch.testing.assert_close(found.value, wanted.value)
    if grad:
        pairs = [torch.autograd.grad(each.value.sin().sum(), inputs) for each in (found, wanted)]
        for one, other in zip(*pairs, strict=True):
            torch.testing.assert_close(one, other)


def test_what_takes_a_memory() -> None:
    layer, query, rows = made(), torch.randn(1, 4, 2, 3).double(), torch.randn(3, 7, 5).double()
    assert plan_at_once(layer, query, rows, "projected") is None
    assert plan_at_once(layer, query, rows) is None  # so few rows are projected
    assert plan_at_once(layer, query, rows[:0], "raw") is None
    assert plan_at_once(layer, query, rows[:, :0], "raw") is None
    layer.train().dropout = 0.3
    assert plan_at_once(layer, query, rows, "raw") is None
    layer.eval().null_row = NullRow(4, 3, 3).double()
    assert plan_at_once(layer, query, rows, "raw") is None


def test_it_refuses_what_a_memory_does() -> None:
    layer, query, rows = made(), torch.randn(1, 4, 2, 3).double(), torch.randn(3, 7, 5).double()
    for given in (rows[0], rows.long(), rows.float(), rows[..., :3]):
        with pytest.raises(xa.ContractError, match="rows"):
            plan_at_once(layer, query, given, "raw")
    layer.key_norm = torch.nn.LayerNorm(3).double()
    with pytest.raises(xa.ContractError, match="key norm"):
        plan_at_once(layer, query, rows, "raw")
    with pytest.raises(xa.ContractError, match="form"):
        plan_at_once(layer, query, rows, "folded")
    layer.key_norm, layer.scale = torch.nn.Identity(), float("nan")
    with pytest.raises(xa.ContractError, match="scale"):
        plan_at_once(layer, query, rows, "raw")
    layer.scale, layer.dropout = 1.0, 1.5
    with pytest.raises(xa.ContractError, match="dropout"):
        plan_at_once(layer, query, rows, "raw")
