"""Cross-entropy block by block equals torch's over all logits, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from crossattention.translate import cross_entropy as module
from crossattention.translate.cross_entropy import cross_entropy


def drawn(count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Rows [count, 7], weight [11, 7] and targets."""
    torch.manual_seed(count)
    rows, weight = (torch.randn(n, 7, dtype=dtype, requires_grad=True) for n in (count, 11))
    return rows, weight, torch.randint(11, (count,))


@pytest.mark.parametrize("count", [1, 5, 10, 13])  # less than a block, whole ones, a short last one
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
)
def test_it_equals_torch(
    count: int, smoothing: float, dtype: torch.dtype, tolerance: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "BLOCK", 5)
    rows, weight, target = drawn(count, dtype)
    wide = [each.detach().double().requires_grad_() for each in (rows, weight)]
    found = cross_entropy(rows, weight, target, smoothing)
    wanted = F.cross_entropy(wide[0] @ wide[1].T, target, label_smoothing=smoothing)
    near = {"atol": tolerance, "rtol": tolerance, "check_dtype": False}
    torch.testing.assert_close(found, wanted, **near)
    pairs = zip(
        torch.autograd.grad(3 * found, (rows, weight)),
        torch.autograd.grad(3 * wanted, wide),
        strict=True,
    )
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, **near)


def test_autocast_narrows_products_alone() -> None:
    rows, weight, target = drawn(13, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = cross_entropy(rows, weight, target, 0.1)
    row_grad, weight_grad = torch.autograd.grad(found, (rows, weight))
    assert found.dtype == row_grad.dtype == weight_grad.dtype == torch.float32
    wanted = F.cross_entropy(rows @ weight.T, target, label_smoothing=0.1)
    torch.testing.assert_close(found, wanted, atol=3e-2, rtol=3e-2)


def test_no_rows_cost_nothing() -> None:
    rows, weight, target = drawn(0, torch.float32)
    found = cross_entropy(rows, weight, target, 0.1)
    assert found.item() == 0
    assert not torch.autograd.grad(found, weight)[0].any()
