"""Law 7. Reading parts and merging equals reading the whole: in any order, empty parts included.

The gradients that run through the merge are those of the whole.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck

import crossattention as xa
from crossattention.nn import MultiCrossAttention
from laws.table import EXACT

CUTS = ([0, 4, 11], [0, 0, 11], [0, 3, 3, 8, 11], [0, 11], [0, 1, 11, 11])


def streams(device: torch.device) -> list[Tensor]:
    torch.manual_seed(1)
    shapes = [(5, 6, 7, 13), (2, 2, 11, 13), (2, 2, 11, 13), (5, 1, 7, 11)]
    made = [torch.randn(shape, dtype=torch.float64, device=device) for shape in shapes]
    made[3] = made[3].masked_fill(torch.rand(made[3].shape, device=device) > 0.6, -torch.inf)
    made[3][1, :, 2] = -torch.inf  # a row that no part reads
    made[3][2, :, 3, 4:] = -torch.inf  # a row that only a first part reads
    return [each.requires_grad_() for each in made]


def read(made: list[Tensor], start: int, end: int, kernel: str) -> tuple[Tensor, Tensor]:
    query, key, value, bias = made
    return xa.attend_with_lse(
        query, key[:, :, start:end], value[:, :, start:end], bias=bias[..., start:end],
        owner=[1, 0, 0, 1, 0], kernel=kernel,
    )  # fmt: skip


@pytest.mark.parametrize("cuts", CUTS, ids=str)
@pytest.mark.parametrize("kernel", ["reference", "matmul", "auto"])
def test_parts_are_the_whole(kernel: str, cuts: list[int], device: torch.device) -> None:
    made = streams(device)
    results = []
    for parts in ([(0, 11)], list(pairwise(cuts))):
        value, lse = xa.merge([read(made, *part, kernel) for part in parts])
        loss = value.sin().sum() + lse.masked_fill(lse == -torch.inf, 0).cos().sum()
        results.append((value, lse, *grad(loss, made)))
    for ours, wanted in zip(*results, strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-11, rtol=1e-11)
    assert bool((results[0][1][1, :, 2] == -torch.inf).all())
    assert not results[0][0][1, :, 2].any()


@pytest.mark.parametrize("kernel", EXACT)
def test_without_gradients_every_kernel_merges(kernel: str, device: torch.device) -> None:
    with torch.no_grad():
        made = streams(device)
        whole = read(made, 0, 11, "reference")
        merged = xa.merge([read(made, 0, 5, kernel), read(made, 5, 11, kernel)])
    for ours, wanted in zip(merged, whole, strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-11, rtol=1e-11)


def test_merging_is_associative_and_commutative(device: torch.device) -> None:
    made = streams(device)
    a, b, c = (read(made, *part, "reference") for part in ((0, 3), (3, 8), (8, 11)))
    wanted = xa.merge([a, b, c])
    for found in (
        xa.merge([xa.merge([a, b]), c]), xa.merge([a, xa.merge([b, c])]), xa.merge([c, a, b]),
    ):  # fmt: skip
        for ours, each in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, each, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_two_empty_parts_are_empty(dtype: torch.dtype) -> None:
    nothing = torch.zeros(3, 7, 13, dtype=dtype, requires_grad=True)
    lse = torch.full((3, 7), -torch.inf, dtype=dtype, requires_grad=True)
    value, total = xa.merge([(nothing, lse), (nothing, lse)])
    assert value.dtype == dtype and not value.any() and not value.isnan().any()
    assert bool((total == -torch.inf).all())
    finite = total.masked_fill(total == -torch.inf, 0)
    for each in grad(value.sum() + finite.sum(), [nothing, lse], materialize_grads=True):
        assert not each.any() and not each.isnan().any()


def test_large_scores_merge_without_overflow() -> None:
    value = torch.tensor([[1.0], [3.0]])
    for shift in (-1e4, 0.0, 1e4):
        parts = [(value, torch.tensor([shift, shift])), (2 * value, torch.tensor([shift, shift]))]
        merged, lse = xa.merge(parts)
        torch.testing.assert_close(merged, 1.5 * value)
        torch.testing.assert_close(lse, torch.full((2,), shift) + torch.tensor(2.0).log())


def test_gradcheck() -> None:
    torch.manual_seed(2)
    value = [torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in "ab"]
    lse = [torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in "ab"]

    def run(v: Tensor, w: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return xa.merge([(v, x), (w, y)])

    assert gradcheck(run, [*value, *lse], raise_exception=False)


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_a_joint_reading_of_parts_is_the_reading_of_the_whole(form: str) -> None:
    torch.manual_seed(3)
    whole = xa.CrossAttention(12, 2).double().eval()
    parts = MultiCrossAttention(12, 2, (12, 12)).double().eval()
    for reader in parts.readers:
        for name in ("key_projection", "value_projection"):
            setattr(reader, name, getattr(whole, name))
    for name in ("query_projection", "output_projection"):
        setattr(parts, name, getattr(whole, name))
    query, rows = torch.randn(3, 5, 12).double(), torch.randn(3, 7, 12).double()
    inputs = [query.requires_grad_(), rows.requires_grad_(), *whole.parameters()]
    for cut in (0, 2, 7):
        lengths = torch.tensor([7, 1, 4])
        split = [rows[:, :cut], rows[:, cut:]]
        counts = [lengths.clamp(max=cut), (lengths - cut).clamp(min=0)]
        read = parts(query, parts.remember(split, counts, form=form))
        wanted = whole(query, whole.remember(rows, lengths, form=form))
        torch.testing.assert_close(read, wanted)
        found = grad(read.square().sum(), inputs)
        for one, other in zip(found, grad(wanted.square().sum(), inputs), strict=True):
            torch.testing.assert_close(one, other)
