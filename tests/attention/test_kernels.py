"""Every kernel against the definition, in float64: values, log-sum-exp and gradients."""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.attention.choose import KERNELS
from problems import MASKS, OWNERS, masks, streams

# In float64 and with gradients; the native kernel has neither, and tests of its own.
FAST = [kernel.name for kernel in KERNELS if kernel.name not in ("reference", "native")]


def close(left: torch.Tensor, right: torch.Tensor, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(left, right, atol=tolerance, rtol=tolerance, equal_nan=False)


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kernel", FAST)
def test_kernel_equals_reference(kernel: str, mask: str, owner: str) -> None:
    torch.manual_seed(1)
    query, key, value = streams(OWNERS[owner])
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    options = masks(mask, len(OWNERS[owner]), 4, 5, 7) | {"owner": OWNERS[owner]}
    found = xa.attend(query, key, value, **options, kernel=kernel)
    right = xa.attend(query, key, value, **options, kernel="reference")
    close(found, right)
    upstream = torch.randn_like(right)
    for ours, wanted in zip(
        torch.autograd.grad(found, leaves, upstream),
        torch.autograd.grad(right, leaves, upstream),
        strict=True,
    ):
        close(ours, wanted)


@pytest.mark.parametrize("mask", MASKS)
def test_lse_and_its_gradient(mask: str) -> None:
    torch.manual_seed(2)
    owner = OWNERS["scattered"]
    query, key, value = streams(owner, d=3, e=2)
    bias = torch.randn(6, 1, 5, 7, dtype=torch.float64)
    leaves = [tensor.requires_grad_() for tensor in (query, key, value, bias)]
    options = {"bias": bias} | masks(mask, 6, 4, 5, 7) | {"owner": owner, "softcap": 1.5}
    used = [leaf for leaf in leaves if leaf is not bias or options["bias"] is bias]
    results = []
    for kernel in ("matmul", "reference"):
        value_read, lse = xa.attend_with_lse(query, key, value, **options, kernel=kernel)
        loss = value_read.sin().sum() + lse.masked_fill(lse == -torch.inf, 0).cos().sum()
        results.append((value_read, lse, *torch.autograd.grad(loss, used)))
    for ours, wanted in zip(*results, strict=True):
        close(ours, wanted)


@pytest.mark.parametrize("mask", MASKS)
def test_fused_lse_without_gradient(mask: str) -> None:
    torch.manual_seed(3)
    owner = OWNERS["blocks"]
    query, key, value = streams(owner)
    options = masks(mask, 6, 4, 5, 7) | {"owner": owner}
    ours = xa.attend_with_lse(query, key, value, **options, kernel="fused")
    wanted = xa.attend_with_lse(query, key, value, **options, kernel="reference")
    close(ours[0], wanted[0])
    close(ours[1], wanted[1])


@pytest.mark.parametrize("kernel", ["reference", *FAST])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rounds_about_once(kernel: str, dtype: torch.dtype) -> None:
    torch.manual_seed(4)
    query, key, value = streams([0, 0, 1, 2], dtype=dtype, d=64, e=64, s=33)
    exact = xa.attend(
        query.double(), key.double(), value.double(), owner=[0, 0, 1, 2], kernel="reference"
    )
    found = xa.attend(query, key, value, owner=[0, 0, 1, 2], kernel=kernel)
    assert found.dtype == dtype
    once = (exact.to(dtype).double() - exact).abs().max()
    limit = 2 if dtype == torch.bfloat16 else 4
    assert (found.double() - exact).abs().max() <= limit * once


@pytest.mark.parametrize("kernel", ["reference", *FAST])
def test_empty_rows_read_exactly_nothing(kernel: str) -> None:
    query, key, value = (x.requires_grad_() for x in streams([0, 1, 2]))
    visible = torch.ones(3, 4, 5, 7, dtype=torch.bool)
    visible[1, :, 2] = False
    read = xa.attend(query, key, value, visible=visible, kernel=kernel)
    assert torch.equal(read[1, :, 2], torch.zeros(4, 3, dtype=torch.float64))
    grad = torch.autograd.grad(read.sum(), query)[0]
    assert torch.equal(grad[1, :, 2], torch.zeros(4, 3, dtype=torch.float64))
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("kernel", ["reference", *FAST])
@pytest.mark.parametrize("hidden_by", ["lengths", "visible", "bias"])
def test_hidden_rows_may_hold_anything(kernel: str, hidden_by: str) -> None:
    torch.manual_seed(5)
    query, key, value = streams([0, 0, 2, 1])
    hides = torch.zeros(4, 1, 1, 7).index_fill(3, torch.tensor([5, 6]), 1).bool()
    options = {
        "lengths": {"lengths": [5, 5, 5]},
        "visible": {"visible": ~hides},
        "bias": {"bias": torch.zeros(4, 1, 1, 7).masked_fill(hides, -torch.inf)},
    }[hidden_by]
    results = []
    for garbage in (0.0, float("nan"), float("inf")):
        dirty_key, dirty_value = key.clone(), value.clone()
        dirty_key[:, :, 5:], dirty_value[:, :, 5:] = garbage, garbage
        leaves = [query.clone(), dirty_key, dirty_value]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        read = xa.attend(*leaves, owner=[0, 0, 2, 1], kernel=kernel, **options)
        results.append((read, *torch.autograd.grad(read.sin().sum(), leaves)))
    for found in results[1:]:
        for ours, clean in zip(found, results[0], strict=True):
            close(ours, clean)


def test_reference_is_right_for_rows_hidden_from_some_queries() -> None:
    query, key, value = streams([0, 1, 2])
    visible = torch.ones(5, 7, dtype=torch.bool)
    visible[2:, 3] = False
    key[:, :, 3], value[:, :, 3] = torch.nan, torch.inf
    read = xa.attend(query, key, value, visible=visible, kernel="reference")
    assert bool(read[:, :, 2:].isfinite().all())
    assert bool(read[:, :, :2].isnan().all())


@pytest.mark.parametrize("kernel", ["reference", *FAST])
@pytest.mark.parametrize("sizes", [{"s": 0}, {"t": 0}, {"d": 0, "e": 0}])
def test_zero_sizes(kernel: str, sizes: dict[str, int]) -> None:
    query, key, value = streams([0, 1, 2], **sizes)
    if kernel == "fused" and "d" in sizes:
        with pytest.raises(xa.NoKernelError, match="width 0"):
            xa.attend(query, key, value, kernel=kernel)
        return
    read, lse = xa.attend_with_lse(query, key, value, kernel=kernel)
    assert read.shape == (*query.shape[:3], value.shape[-1])
    assert torch.equal(lse, torch.full_like(lse, -torch.inf if sizes.get("s") == 0 else 0) + (
        torch.log(torch.tensor(7.0, dtype=lse.dtype)) if "d" in sizes else 0))  # fmt: skip
    assert not read.any()


def test_dropout_averages_to_the_undropped_result() -> None:
    torch.manual_seed(6)
    query, key, value = streams([0, 1, 2])
    whole = xa.attend(query, key, value)
    for kernel in ("reference", "matmul"):
        draws = [xa.attend(query, key, value, dropout=0.3, kernel=kernel) for _ in range(600)]
        assert (torch.stack(draws).mean(0) - whole).abs().max() < 0.15
        assert not torch.equal(draws[0], draws[1])


def test_layouts_do_not_matter() -> None:
    torch.manual_seed(7)
    for s in (1, 31, 32, 33, 65):
        query, key, value = streams([0, 1, 2], dtype=torch.float32, s=s)
        wanted = xa.attend(query, key, value, kernel="reference")
        strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value)]
        columns = [x.transpose(2, 3).contiguous().transpose(2, 3) for x in (query, key, value)]
        for kernel in FAST:
            close(xa.attend(*strided, kernel=kernel), wanted, 1e-5)
            close(xa.attend(*columns, kernel=kernel), wanted, 1e-5)
        one = key[:1].expand(3, -1, -1, -1), value[:1].expand(3, -1, -1, -1)
        shared = xa.attend(query, key[:1].contiguous(), value[:1].contiguous(), owner=[0, 0, 0])
        for kernel in FAST:
            close(xa.attend(query, *one, kernel=kernel), shared, 1e-5)


def test_what_is_chosen_is_differentiated_forwards() -> None:
    torch.manual_seed(8)
    query, key, value = streams([0, 1, 2])
    tangent, step = torch.randn_like(query), 1e-6
    near = [xa.attend(query + sign * step * tangent, key, value) for sign in (1, -1)]
    wanted = (near[0] - near[1]) / (2 * step)
    for _ in "ab":
        found = torch.func.jvp(lambda x: xa.attend(x, key, value), (query,), (tangent,))[1]
        close(found, wanted, 1e-7)
        with pytest.raises(xa.NoKernelError, match="it has no forward differentiation"):
            torch.func.jvp(lambda x: xa.attend(x, key, value, kernel="fused"), (query,), (query,))
