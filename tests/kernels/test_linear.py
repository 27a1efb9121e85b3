"""The native map of few rows against torch's: instruction sets, sizes, layouts, what it leaves."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from crossattention.kernels.native.library import INSTRUCTIONS, absent, best, runs_here
from crossattention.kernels.native.linear import HALVES, ROWS, linear, maps_few

HERE = [name for name in INSTRUCTIONS if runs_here(name)]
pytestmark = pytest.mark.skipif(absent() != "", reason="the native kernel is an optional part")


@pytest.fixture(autouse=True)
def _without_gradients() -> object:
    with torch.no_grad():
        yield


@pytest.mark.parametrize("x", [16, 32, 48, 160])
@pytest.mark.parametrize("instructions", HERE)
def test_it_is_the_same_product(instructions: str, x: int) -> None:
    """Each number of rows that is held in registers, and of outputs that end inside a block."""
    torch.manual_seed(1)
    for count in (1, 2, 3, 4, 5, 6, 7, 13, 47, 97):
        for y in (1, 3, 31, 32, 37, 101):
            rows, weight, bias = torch.randn(count, x), torch.randn(y, x), torch.randn(y)
            rest = torch.randn(y, count).T
            for each in (None, bias):
                wanted = functional.linear(rows, weight, each)
                found = linear(rows, weight, each, instructions=instructions)
                torch.testing.assert_close(found, wanted, atol=3e-5, rtol=1e-5)
                found = linear(rows, weight, each, rest, True, instructions)
                torch.testing.assert_close(found, wanted.relu() + rest, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("instructions", HERE)
def test_each_group_of_outputs_maps_its_own_rows(instructions: str) -> None:
    """Groups that end inside a block of outputs; rows and groups in any order."""
    torch.manual_seed(3)
    sizes = ((1, 3, 1, 16), (1, 5, 37, 64), (2, 7, 13, 32), (7, 5, 11, 48), (13, 2, 72, 160))
    for n, g, e, x in sizes:
        rows, weight, bias = torch.randn(n, g, x), torch.randn(g * e, x), torch.randn(g * e)
        wanted = torch.einsum("ngx,gex->nge", rows, weight.view(g, e, x)).flatten(1)
        for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
            given = rows.permute(order).contiguous().permute(order)
            for each in (None, bias):
                found = linear(given, weight, each, instructions=instructions, by_group=True)
                more = wanted if each is None else wanted + bias
                torch.testing.assert_close(found, more, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("instructions", HERE)
def test_half_weights_give_what_they_give_widened(instructions: str, dtype: torch.dtype) -> None:
    """To the bit, those that are no numbers or hardly any among them."""
    torch.manual_seed(3)
    for x in (16, 32, 48, 64, 128, 160):
        for count in (1, 2, 3, 5, 7, 13):
            rows, bias = torch.randn(count, x), torch.randn(37)
            weight = torch.randn(74, 2 * x).to(dtype)[::2, x:]
            weight[3, 1], weight[5, 2], weight[7] = torch.inf, torch.nan, 3e-7
            found = linear(rows, weight, bias, None, False, instructions)
            wanted = linear(rows, weight.float(), bias, None, False, instructions)
            assert found.dtype is torch.float32
            torch.testing.assert_close(found, wanted, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_any_layout_of_rows_and_strided_weight_rows(threads: int) -> None:
    torch.manual_seed(2)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    rows = torch.randn(64, 3, 5).transpose(0, 2)  # [5, 3, 64]
    weight = torch.randn(1999, 128)[::2, 32:96]
    found = linear(rows, weight, None)
    torch.set_num_threads(before)
    torch.testing.assert_close(found, functional.linear(rows, weight), atol=3e-5, rtol=1e-5)


def test_what_is_not_a_number_stays_in_its_row_and_output() -> None:
    rows, weight = torch.ones(3, 16), torch.ones(5, 16)
    rows[1, 0], weight[2, 0] = torch.nan, torch.inf
    found = linear(rows, weight, None)
    assert found.isnan().sum() == 5 and found[1].isnan().all()
    assert found[0].isinf().tolist() == [False, False, True, False, False]


def test_it_leaves_what_it_cannot_map() -> None:
    if best() == "portable":
        pytest.skip("there it leaves everything")
    rows, weight, bias = torch.ones(2, 16), torch.ones(3, 16), torch.ones(3)
    assert maps_few(rows, weight, bias)
    assert not maps_few(rows[:0], weight, bias)
    assert not maps_few(torch.ones(ROWS + 1, 16), weight, bias)
    assert not maps_few(torch.ones(2, 17), torch.ones(3, 17), bias)
    assert not maps_few(rows, torch.ones(16, 3).T, bias)
    assert not maps_few(torch.ones(4, 8), weight, bias)
    assert not maps_few(rows, weight, torch.ones(4))
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        assert not maps_few(rows.to(dtype), weight.to(dtype), None)
        assert not maps_few(rows, weight, bias.to(dtype))
        assert not maps_few(rows, weight.to(dtype), bias)  # nor does torch, but where one asks
        assert maps_few(rows, weight.to(dtype), bias, HALVES) == (dtype in HALVES)
        assert not maps_few(rows.to(dtype), weight.to(dtype), bias, HALVES)
    assert not maps_few(rows.to("meta"), weight, bias)
    with torch.enable_grad():
        assert not maps_few(rows, nn.Parameter(weight), bias)
    with torch.autocast("cpu", torch.bfloat16):
        assert not maps_few(rows, weight, bias)
    inside = []
    torch.func.vmap(lambda x: inside.append(maps_few(x, weight, bias)) or x)(rows)
    assert inside == [False]
