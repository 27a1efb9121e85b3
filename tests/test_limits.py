"""Sizes, strides and offsets beyond 2^31 and 2^32: right on spot rows, where 32 bits would wrap.

What is that large takes no memory: tensors are windows on a sparse file, of which only the pages
that are written exist, or hold no numbers at all.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.attention.choose import KERNELS

BEYOND = (2**31 + 11, 2**32 + 15)
NAMES = [kernel.name for kernel in KERNELS]


def window(folder: Path, name: str, like: Tensor, axis: int, stride: int) -> Tensor:
    """Lay a tensor out so that neighbours on one axis lie `stride` elements apart."""
    strides = list(like.contiguous().stride())
    strides[axis] = stride
    far = sum((size - 1) * each for size, each in zip(like.shape, strides, strict=True)) + 1
    flat = torch.uint8 if like.dtype == torch.bool else like.dtype
    file = torch.from_file(str(folder / name), shared=True, size=far, dtype=flat)
    (folder / name).unlink()  # the mapping keeps it alive
    laid = file.as_strided(like.shape, strides)
    laid = laid.view(torch.bool) if like.dtype == torch.bool else laid
    return laid.copy_(like)


@pytest.mark.parametrize("stride", BEYOND)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kernel", NAMES)
def test_streams_that_lie_far_apart(kernel: str, axis: int, stride: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    wanted = xa.attend(query, key, value, lengths=[5, 2], kernel="reference")
    far = [
        window(tmp_path, name, each, axis, stride)
        for name, each in (("query", query), ("key", key), ("value", value))
    ]
    assert min(each.stride(axis) for each in far) == stride
    found, lse = xa.attend_with_lse(*far, lengths=[5, 2], kernel=kernel)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(lse, xa.attend_with_lse(query, key, value, lengths=[5, 2])[1])


@pytest.mark.parametrize("stride", BEYOND)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kernel", NAMES)
def test_masks_that_lie_far_apart(kernel: str, axis: int, stride: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    query, key = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 5, 8)
    visible, bias = torch.rand(3, 2, 4, 5) > 0.4, torch.randn(3, 2, 4, 5)
    wanted = xa.attend(query, key, key, visible=visible, bias=bias, kernel="reference")
    seen = window(tmp_path, "visible", visible, axis, stride)
    added = window(tmp_path, "bias", bias, axis, stride)
    found = xa.attend(query, key, key, visible=seen, bias=added, kernel=kernel)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_that_lie_far_apart(form: str, axis: int, tmp_path: Path) -> None:
    torch.manual_seed(2)
    layer = xa.CrossAttention(12, 3, memory_width=8).eval()
    query, rows = torch.randn(4, 3, 12), torch.randn(2, 5, 8)
    wanted = layer(query, layer.remember(rows, [5, 2], form=form).shared_by(2))
    far = window(tmp_path, "rows", rows, axis, BEYOND[1])
    found = layer(query, layer.remember(far, [5, 2], form=form).shared_by(2))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(layer(query[:2], layer.remember(far, form=form)),
                               layer(query[:2], layer.remember(rows, form=form)))  # fmt: skip


@pytest.mark.parametrize("kernel", NAMES)
@pytest.mark.parametrize("cells", BEYOND)
def test_more_scores_than_32_bits_count_are_planned_for(kernel: str, cells: int) -> None:
    """Shapes and costs, on tensors without numbers: Python's integers do not wrap."""
    t, s = 65_537, cells // 65_537 + 1
    query = torch.empty(1, 2, t, 4, device="meta")
    key = torch.empty(1, 2, s, 4, device="meta")
    visible = torch.ones(1, dtype=torch.bool, device="meta").expand(1, 2, t, s)
    assert visible.numel() > 2 * cells
    assert xa.attend(query, key, key, visible=visible, kernel=kernel).shape == query.shape
    for each in xa.explain(query, key, key, visible=visible).kernels:
        assert each.multiply_adds == 2 * t * s * 8
        assert 0 < each.seconds < 1e6


@pytest.mark.slow
def test_more_scores_than_32_bits_count_are_read_right() -> None:
    """The fused kernel never holds its scores, so that it alone can: spot rows are checked."""
    torch.manual_seed(3)
    t, s = 46_349, 46_351
    assert t * s > 2**31
    query, key, value = torch.randn(1, 1, t, 4), torch.randn(1, 1, s, 4), torch.randn(1, 1, s, 4)
    found = xa.attend(query, key, value, lengths=[s - 3], kernel="fused")
    spots = torch.tensor([0, 1, t // 2, t - 2, t - 1])
    wanted = xa.attend(query[:, :, spots], key, value, lengths=[s - 3], kernel="matmul")
    torch.testing.assert_close(found[:, :, spots], wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("offset", [2**31, 2**32 + 1, 2**63, 10**30])
def test_causal_offsets_beyond_any_row(offset: int) -> None:
    query, key = torch.randn(1, 1, 3, 4), torch.randn(1, 1, 5, 4)
    everything = xa.attend(query, key, key)
    torch.testing.assert_close(xa.attend(query, key, key, causal=offset), everything)
    assert not xa.attend(query, key, key, causal=-offset).any()


@pytest.mark.parametrize("number", [2**31, 2**32, 2**63, 10**30])
def test_lengths_and_owners_beyond_any_row_are_refused(number: int) -> None:
    rows = torch.ones(1, 3, 4)
    with pytest.raises(xa.ContractError, match="`lengths` must be"):
        xa.Memory.of(rows, [number])
    with pytest.raises(xa.ContractError, match="`owner` must be"):
        xa.Owner.of([number], memories=1)
    for wrapped in (2**32 + 1, -(2**32) + 1):  # 1 if cut to 32 bits
        with pytest.raises(xa.ContractError, match="between 0 and 3"):
            xa.Memory.of(rows, torch.tensor([wrapped]))
