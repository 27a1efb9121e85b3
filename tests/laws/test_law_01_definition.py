"""Law 1. Every kernel and form gives what the definition gives.

In half precision the reference computes in float32 and rounds once; others stay within twice its
error in bfloat16 and four times in float16, and finite however large the numbers are.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import crossattention as xa
from laws.ask import ask, ask_lse, right, right_layer
from laws.given import Given, draw
from laws.table import KERNELS, LAYOUTS, MASKS, Case, cases, every


def precision(case: Case) -> torch.dtype:
    """The narrowest dtype through which a case's numbers pass."""
    if case.door == "layer" and case.mode == "autocast" and case.dtype != "float64":
        return torch.bfloat16
    if case.door == "function" and case.dtype == "half memory":
        return torch.float32  # its memory is exact: it is what the definition is given
    return getattr(torch, case.dtype, torch.float16)


def error_of(found: Tensor, exact: Tensor) -> float:
    assert found.shape == exact.shape
    assert bool(found.isfinite().all())
    return float((found.detach().double() - exact).abs().max()) if exact.numel() else 0.0


def limit_for(case: Case, given: Given, exact: Tensor) -> float:
    dtype = precision(case)
    largest = float(exact.abs().max()) if exact.numel() else 0.0
    if dtype.itemsize > 2:
        return {torch.float64: 1e-12, torch.float32: 5e-6}[dtype] * max(largest, 1.0)
    roundings = 3 if case.door == "layer" else 1  # projections, read and output round in turn
    once = torch.finfo(dtype).eps / 2 * largest * roundings
    judge = case.but(kernel="reference", form="projected")
    if judge != case:
        once = max(once, error_of(ask(judge, given), exact))
    return {torch.bfloat16: 2.0, torch.float16: 4.0}[dtype] * once


@pytest.mark.parametrize("case", cases(**every()), ids=str)
def test_value_is_the_definitions(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    if case.mode == "train":
        for leaf in given.leaves.values():
            leaf.requires_grad_()
    exact = (right(given).value if given.layer is None else right_layer(given)[0]).detach()
    found = ask(case, given).detach()
    assert found.dtype == given.leaves["query"].dtype or case.mode == "autocast"
    assert error_of(found, exact) <= limit_for(case, given, exact)


FUNCTIONS = every(door=("function",), form=("projected",), kept=("fresh",), mode=("eval", "train"))


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_lse_is_the_definitions(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    exact = right(given).lse
    value, lse = ask_lse(case, given)
    assert torch.equal(value, ask(case, given)) or case.kernel in ("fused", "auto")
    assert lse.dtype == (torch.float64 if case.dtype == "float64" else torch.float32)
    half = given.leaves["query"].dtype.itemsize == 2  # torch's kernel rounds exp to 20 bits
    tolerance = 1e-12 if lse.dtype == torch.float64 else 2e-4 if half else 1e-5
    torch.testing.assert_close(lse.double(), exact, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_fused_runs_what_it_can(layout: str, mask: str, device: torch.device) -> None:
    given = draw(Case(mask=mask, layout=layout, dtype="float32"), device)
    query, key, value = (given.leaves[name] for name in ("query", "key", "value"))
    found = xa.attend(query, key, value, **given.options, lengths=given.lengths, kernel="fused")
    torch.testing.assert_close(found.double(), right(given).value, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("owner", ["own", "scattered"])
def test_large_numbers_stay_finite(
    owner: str, kernel: str, dtype: torch.dtype, device: torch.device
) -> None:
    torch.manual_seed(1)
    index = {"own": [0, 1], "scattered": [1, 0, 1, 1, 0]}[owner]
    query = (torch.rand(len(index), 3, 7, 64, device=device) * 40 + 260).to(dtype)
    key, value = ((torch.rand(2, 3, 11, 64, device=device) * 40 + 260).to(dtype) for _ in "kv")
    assert float((query[0] @ key[0].mT).max()) == torch.inf or dtype == torch.bfloat16
    found, lse = xa.attend_with_lse(query, key, value, owner=index, kernel=kernel)
    exact = right(_large(query, key, value, index))
    torch.testing.assert_close(lse.double(), exact.lse, atol=0, rtol=1e-6)
    assert bool((found >= value.min()).all()) and bool((found <= value.max()).all())
    signs = torch.randint(0, 2, key.shape, device=device, dtype=dtype) * 2 - 1
    read = xa.attend(query, key * signs, value * signs, owner=index, kernel=kernel)
    assert bool(read.isfinite().all())


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_large_numbers_in_a_layer_stay_finite(kernel: str, form: str, device: torch.device) -> None:
    torch.manual_seed(2)
    layer = xa.CrossAttention(64, 1).to(device, torch.float16)
    for name in ("query", "key", "value", "output"):
        torch.nn.init.eye_(layer.get_submodule(f"{name}_projection").weight)
    torch.nn.init.constant_(layer.key_projection.bias, 30.0)
    layer.kernel = kernel
    query, rows = (torch.rand(2, n, 64, device=device).half() * 40 + 260 for n in (7, 11))
    with torch.no_grad():
        found = layer(query, layer.remember(rows, form=form))
    assert bool(found.isfinite().all())
    assert bool((found >= 255).all()) and bool((found <= 305).all())


def _large(query: Tensor, key: Tensor, value: Tensor, owner: list[int]) -> Given:
    given = draw(Case(), query.device)
    given.leaves.update(query=query, key=key, value=value)
    given.owner = owner
    given.visible = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=query.device)
    return given
