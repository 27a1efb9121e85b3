"""K9, dtype range: products overflow nowhere, hiding works in every dtype, and dtypes may mix."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem
from cases.paths import FORMS, KERNELS, LAYERS, Path, compute
from cases.runner import EVERY_PATH, check, every_form, name

CASES = load("k9_dtypes")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 2**-6, torch.float16: 2**-8}


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_large_magnitudes(path: Path, dtype: torch.dtype) -> None:
    """Values near 300 with 64 columns: a product is near 6e6 before it is scaled."""
    torch.manual_seed(25)
    given = problem(dtype, d=64, e=64)
    for n in ("query", "key", "value"):
        given[n] = (300 + 8 * given[n]).round()  # exact in every dtype but bfloat16, then rounded
    given["key"][..., 0] *= torch.tensor([1, -1, 1, 1, -1, 1, -1], dtype=dtype)[:, None].T
    given |= {"lengths": [7, 4, 1]}
    wide = {n: x.double() if isinstance(x, torch.Tensor) else x for n, x in given.items()}
    expected, found = compute(wide, Path("attend", "reference")), compute(given, path)
    assert found["output"].dtype == dtype
    limit = ROUNDING[dtype] * 350
    assert bool(found["output"].isfinite().all())
    assert float((found["output"].double() - expected["output"]).abs().max()) <= limit
    assert bool(found["weights"].isfinite().all())
    torch.testing.assert_close(
        found["weights"].sum(-1).double(), torch.ones(3, 4, 5).double(), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("dtype", DTYPES[2:], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_of_large_magnitudes_are_finite(kernel: str, dtype: torch.dtype) -> None:
    torch.manual_seed(26)
    given = problem(dtype, d=64, e=64)
    leaves = [(300 + 8 * given[n]).requires_grad_() for n in ("query", "key", "value")]
    found = xa.attend(*leaves, kernel=kernel)
    for gradient in torch.autograd.grad(found.sum(), leaves):
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_hidden_weight_is_exactly_nothing(form: str, dtype: torch.dtype) -> None:
    case = find(CASES, "hidden in every dtype")
    given = case.tensors(dtype)
    given["key"][..., 1, :] = torch.finfo(dtype).max
    if form == "headless":
        given = {n: x[:, :1] if n in ("query", "key", "value") else x for n, x in given.items()
                 if n != "dtype"}  # fmt: skip
    for kernel in KERNELS:
        found = compute(given, Path(form, kernel))
        assert found["output"].dtype == dtype
        assert torch.equal(found["output"], torch.full_like(found["output"], 2))
        assert not found["weights"][..., 1].any()


MIXES: dict[str, dict[str, torch.dtype]] = {
    "half query, float32 bias": {"query": torch.float16, "key": torch.float16,
                                 "value": torch.float16},
    "bfloat16 query, float32 bias": {"query": torch.bfloat16, "key": torch.bfloat16,
                                     "value": torch.bfloat16},
    "half memory, float32 query": {"key": torch.float16, "value": torch.float16},
    "bfloat16 memory, float32 query": {"key": torch.bfloat16, "value": torch.bfloat16},
    "float32 memory, half query": {"query": torch.float16},
    "float64 bias": {"bias": torch.float64},
    "half bias, float32 query": {"bias": torch.float16},
}  # fmt: skip


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_dtypes_may_mix(kernel: str, mix: str) -> None:
    torch.manual_seed(27)
    given = {n: problem(torch.float32)[n] for n in ("query", "key", "value")}
    given["bias"] = torch.randn(3, 1, 5, 7)
    given = {n: x.to(MIXES[mix].get(n, torch.float32)) for n, x in given.items()}
    exact = xa.attend(**{n: x.double() for n, x in given.items()}, kernel="reference")
    one = len({given[n].dtype for n in ("query", "key", "value")}) == 1
    if kernel == "fused" and not one:
        with pytest.raises(xa.NoKernelError, match="must have one dtype"):
            xa.attend(**given, kernel=kernel)
        return
    found = xa.attend(**given, kernel=kernel)
    assert found.dtype == given["query"].dtype
    limit = max(ROUNDING[x.dtype] for n, x in given.items() if n != "bias")
    torch.testing.assert_close(found.double(), exact, atol=limit, rtol=limit)


@pytest.mark.parametrize("form", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(28)
    layer = xa.CrossAttention(12, 3).eval()
    rows, query = torch.randn(2, 7, 12), torch.randn(2, 5, 12)
    visible = torch.rand(2, 1, 5, 7) > 0.4
    visible[0, :, 2] = False

    def read() -> Any:
        memory = rows if form == "fresh" else layer.remember(rows, form=form)
        return layer(query, memory, visible=visible)

    plain = read()
    with torch.autocast("cpu", dtype):
        found = read()
    assert found.dtype in (dtype, torch.float32)
    limit = 4 * ROUNDING[dtype]
    torch.testing.assert_close(found.float(), plain, atol=limit, rtol=limit)
    assert not found[0, 2].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", LAYERS[:2])
def test_a_half_precision_memory_and_a_float32_layer(form: str, dtype: torch.dtype) -> None:
    """Right, or one message that says what to cast."""
    torch.manual_seed(29)
    layer = xa.CrossAttention(12, 3).eval()
    query = torch.randn(2, 5, 12)
    memory = layer.remember(torch.randn(2, 7, 12), [7, 3], form=form)
    exact = layer(query, memory)
    found = layer(query, memory.to(dtype))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, atol=4 * ROUNDING[dtype], rtol=4 * ROUNDING[dtype])
