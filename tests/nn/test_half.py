"""Weights in half precision give what the rounded weights give in float32; no row is narrowed."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from crossattention.kernels.native.library import absent, best
from crossattention.kernels.native.linear import HALVES, ROWS
from crossattention.nn.half import HalfEmbedding, HalfLinear
from crossattention.nn.packed import Packed

COUNTS = (1, 7, ROWS, ROWS + 1)  # met where they lie, and widened in the call


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("width", [48, 37])
def test_a_map_is_that_of_the_rounded_weights(width: int, dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(width, 101, bias)
    half = HalfLinear(linear, dtype)
    wide = linear.weight.detach().to(dtype).float()
    packed = Packed.of(half.weight, half.bias)
    assert half.weight.dtype == dtype and packed.laid_out is None
    assert packed.weight.data_ptr() == half.weight.data_ptr()  # one copy
    assert packed.few == (ROWS if width == 48 and not absent() and best() != "portable" else 0)
    for count in COUNTS:
        rows, rest = torch.randn(count, width), torch.randn(count, 101)
        wanted = functional.linear(rows, wide, linear.bias)
        with torch.inference_mode():
            for found, right in (
                (half(rows), wanted),
                (half(rows[:, None])[:, 0], wanted),
                (packed(rows), wanted),
                (packed.relu(rows), wanted.relu()),
                (packed.plus(rows, rest), wanted + rest),
            ):
                torch.testing.assert_close(found, right, atol=3e-5, rtol=1e-5)
    assert not torch.allclose(linear(rows), wanted, atol=3e-5, rtol=1e-5)  # rounding shows


@pytest.mark.skipif(absent() != "" or best() == "portable", reason="torch maps all rows")
@pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
def test_weights_that_a_half_holds_exactly_are_met_as_one(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    stored = torch.randn(53, 48).to(dtype)
    stored[3, 5], stored[7, 11] = -0.0, 2.0**-24  # float16's least number
    packed = Packed.of(stored.float(), None)
    assert packed.weight.dtype == dtype and packed.laid_out is not None
    for count in COUNTS:
        rows = torch.randn(count, 48)
        with torch.inference_mode():
            wanted = functional.linear(rows, stored.float())
            torch.testing.assert_close(packed(rows), wanted, atol=3e-5, rtol=1e-5)
    stored[3, 5] = torch.nan
    assert Packed.of(stored.float(), None).weight.dtype is torch.float32


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_table_gives_its_rounded_rows(dtype: torch.dtype) -> None:
    table, tokens = nn.Embedding(11, 7), torch.randint(11, (3, 5))
    found = HalfEmbedding(table, dtype)(tokens)
    assert torch.equal(found, table.weight.to(dtype).float()[tokens])


def test_numbers_too_large_are_refused() -> None:
    linear = nn.Linear(3, 2)
    nn.init.constant_(linear.weight, 7e4)
    assert HalfLinear(linear, torch.bfloat16).weight.isfinite().all()
    with pytest.raises(ValueError, match="`weights` must be at most 65504"):
        HalfLinear(linear, torch.float16)
