"""K8, layout and size: no stride, tile border, chunk or offset changes a number."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import crossattention as xa
from cases.book import Case, array, find, from_recipe, load
from cases.draws import problem
from cases.judge import right, zero
from cases.paths import KERNELS, masks
from cases.runner import check, every_form, name

CASES = load("k8_layout")
PACKED = [case for case in CASES if case.id == "C34"]
BORDERS = (1, 31, 32, 33, 63, 64, 65, 127, 128, 129)


def contiguous(x: Tensor) -> Tensor:
    return x.contiguous()


def rows_before_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def columns_before_rows(x: Tensor) -> Tensor:
    return x.transpose(2, 3).contiguous().transpose(2, 3)


def wider_buffer(x: Tensor) -> Tensor:
    buffer = x.new_full((*x.shape[:3], x.shape[3] + 7), torch.nan)
    buffer[..., 3 : 3 + x.shape[3]] = x
    return buffer[..., 3 : 3 + x.shape[3]]


def larger_batch(x: Tensor) -> Tensor:
    buffer = x.new_full((x.shape[0] + 2, *x.shape[1:]), torch.nan)
    buffer[1:-1] = x
    return buffer[1:-1]


def every_other(x: Tensor) -> Tensor:
    buffer = x.new_full((x.shape[0], x.shape[1], 2 * x.shape[2], 2 * x.shape[3]), torch.nan)
    buffer[..., ::2, ::2] = x
    return buffer[..., ::2, ::2]


def unaligned(x: Tensor) -> Tensor:
    buffer = x.new_full((x.numel() + 1,), torch.nan)
    buffer[1:] = x.flatten()
    return buffer[1:].view(x.shape)


LAYOUTS = (
    contiguous, rows_before_heads, columns_before_rows, wider_buffer, larger_batch, every_other,
    unaligned,
)  # fmt: skip


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


def read(
    given: dict[str, Any], kernel: str, with_lse: bool, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Call either function; the lse is None where it was not asked for."""
    arguments = [given[n] for n in ("query", "key", "value")]
    if with_lse:
        return xa.attend_with_lse(*arguments, kernel=kernel, **options)
    return xa.attend(*arguments, kernel=kernel, **options), None


def compare_spots(case: Case, found: tuple[Tensor, Tensor | None], dtype: torch.dtype) -> None:
    for spot in case.expect["spots"]:
        at, tolerance = tuple(spot["at"]), case.tolerance(dtype) or 0
        width = found[0].shape[-1]
        right(f"output {at}", found[0][at], array(spot["output"][:width]), tolerance)
        if found[1] is not None:
            right(f"lse {at}", found[1][at], array(spot["lse"]), tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", [case for case in CASES if case.id == "C33"], ids=name)
def test_layouts(case: Case, kernel: str) -> None:
    for dtype in case.dtypes:
        given = case.tensors(dtype)
        for layout in (*LAYOUTS, expanded_heads, expanded_mask):
            laid = {n: layout(given[n]) for n in ("query", "key", "value")}
            mask = given["visible"]
            visible = expanded_mask(mask) if layout is expanded_mask else mask
            if kernel == "fused":  # it has one head width: five columns more
                laid["value"] = layout(torch.nn.functional.pad(given["value"], (0, 3)))
            for with_lse in (False, True):
                found = read(laid, kernel, with_lse, visible=visible, scale=0.5)
                compare_spots(case, (found[0][..., :5], found[1]), dtype)
                if case.name == "1 row":
                    assert not found[0].any()


def expanded_heads(x: Tensor) -> Tensor:
    """Repeat one head by stride 0; keys and values here are equal in all heads."""
    equal = all(torch.equal(x[:, :1], x[:, h : h + 1]) for h in range(x.shape[1]))
    return x[:, :1].expand(-1, x.shape[1], -1, -1) if equal else x


def expanded_mask(x: Tensor) -> Tensor:
    return x.expand(2, 4, 3, -1) if x.dtype == torch.bool else x


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("what", ["key", "value", "query"])
def test_the_gradient_of_an_expanded_input_is_summed(kernel: str, what: str) -> None:
    torch.manual_seed(23)
    given = problem(g=4)
    upstream = given.pop("upstream")
    for axis in (0, 1, 2):
        one = given[what].narrow(axis, 0, 1).clone().requires_grad_()
        copies = one.detach().expand_as(given[what]).clone().requires_grad_()
        grads = []
        for leaf, source in ((one, one.expand_as(given[what])), (copies, copies)):
            streams = given | {what: source}
            found = xa.attend(*(streams[n] for n in ("query", "key", "value")), kernel=kernel)
            grads.append(torch.autograd.grad(found, leaf, upstream)[0])
        torch.testing.assert_close(grads[0], grads[1].sum(axis, keepdim=True))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != "reference"])
def test_a_grid_of_layouts_at_tile_borders(kernel: str, layout: Any) -> None:
    torch.manual_seed(24)
    for s in BORDERS:
        for t, d in ((1, 8), (33, 5)):
            given = problem(torch.float32, b=2, t=t, s=s, d=d, e=d)
            laid = {n: layout(given[n]) for n in ("query", "key", "value")}
            options = {"lengths": [s, s // 2], "causal": "bottom_right"}
            expected = read(given, "reference", True, **options)
            for with_lse in (True, False):
                found = read(laid, kernel, with_lse, **options)
                torch.testing.assert_close(found[0], expected[0], atol=2e-6, rtol=1e-5)
                if found[1] is not None:
                    torch.testing.assert_close(found[1], expected[1], atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("axis", ["rows", "t", "s"])
def test_chunks_of_every_size(axis: str, kernel: str) -> None:
    case = find(CASES, "C32")
    for dtype in case.dtypes:
        for size in case.inputs["chunk"]["sizes"]:
            given = case.tensors(dtype)
            names = [n for n in case.expect["grads"] if kernel != "fused"]
            for n in names:
                given[n].requires_grad_()
            output, lse = chunked(given, axis, size, kernel)
            tolerance = case.tolerance(dtype) or 0
            right("output", output, case.expected("output"), tolerance)
            right("lse", lse, case.expected("lse"), tolerance)
            leaves = [given[n] for n in names]
            grads = torch.autograd.grad(output, leaves, given["upstream"]) if names else ()
            for n, grad in zip(names, grads, strict=True):
                right(f"gradient of {n}", grad, case.gradient(n, grad.shape), tolerance)


def chunked(given: dict[str, Any], axis: str, size: int, kernel: str) -> tuple[Tensor, Tensor]:
    """Cut heads (batch is 1), query rows or memory rows into chunks, and put them together."""
    position = {"rows": 1, "t": 2, "s": 3}[axis]
    cut = {n: pieces(given[n], position, size) for n in ("query", "bias", "visible")}
    for n in ("key", "value"):  # [m, g, s, x]: heads, nothing, or rows
        cut[n] = pieces(given[n], {1: 1, 2: 4, 3: 2}[position], size)
    if axis == "s":
        cut["query"] = [given["query"]]
    count = max(len(x) for x in cut.values())
    parts = []
    for i in range(count):
        one = {n: x[i] if len(x) > 1 else x[0] for n, x in cut.items()}
        options = {"visible": one["visible"], "bias": one["bias"], "scale": given["scale"]}
        parts.append(read(one, kernel, True, **options))
    if axis == "s":
        return xa.merge(parts)
    return torch.cat([x for x, _ in parts], position), torch.cat([x for _, x in parts], position)


def pieces(x: Tensor, axis: int, size: int) -> list[Tensor]:
    """Split an axis that is not 1; keep the whole otherwise."""
    return list(x.split(size, axis)) if axis < x.dim() and x.shape[axis] > 1 else [x]


def members(given: dict[str, Any]) -> list[tuple[slice, slice]]:
    """Give the rows of each member of a packed problem."""
    found, i, j = [], 0, 0
    for t, s in zip(given["query_lengths"], given["key_lengths"], strict=True):
        found.append((slice(i, i + t), slice(j, j + s)))
        i, j = i + t, j + s
    return found


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", PACKED, ids=name)
def test_members_one_by_one(case: Case, kernel: str) -> None:
    for dtype in case.dtypes:
        given = case.tensors(dtype)
        if kernel == "fused":  # it has one head width: a column of zeros more
            given["value"] = torch.nn.functional.pad(given["value"], (0, 1))
        leaves = [given[n].requires_grad_() for n in ("query", "key", "value")]
        query, key, value = leaves
        output = query.new_zeros(*query.shape[:2], value.shape[-1])
        for rows, memory in members(given):
            streams = (x.transpose(0, 1)[None] for x in (query[rows], key[memory], value[memory]))
            options = masks({n: given[n] for n in ("causal", "scale") if given.get(n)})
            found = xa.attend(*streams, **options, kernel=kernel)
            output = output.index_put((torch.arange(rows.start, rows.stop),),
                                      found[0].transpose(0, 1))  # fmt: skip
        width, tolerance = len(case.expect["output"][0][0]), case.tolerance(dtype) or 0
        right("output", output[..., :width], case.expected("output"), tolerance)
        gradients = torch.autograd.grad(output[..., :width].sum(), leaves)
        for n, grad in zip(("query", "key", "value"), gradients, strict=True):
            grad = grad[..., :width] if n == "value" else grad
            right(f"gradient of {n}", grad, case.gradient(n, grad.shape), tolerance)
        used = torch.arange(len(query)) < sum(given["query_lengths"])
        zero("slack rows", output, ~used[:, None, None])


@pytest.mark.xfail(strict=True, raises=TypeError, reason="needs the packed layout")
@pytest.mark.parametrize("case", PACKED, ids=name)
def test_members_packed(case: Case) -> None:
    given = case.tensors(torch.float64)
    lengths = {n: given[n] for n in ("query_lengths", "key_lengths")}
    streams = [given[n] for n in ("query", "key", "value")]
    found = xa.attend(*streams, **masks({n: given[n] for n in ("scale",)}), **lengths)
    torch.testing.assert_close(found, case.expected("output"))


@cache
def at_the_borders(case_name: str) -> dict[str, Tensor]:
    """Work out a large case's keys and values, and its listed query rows, in float64."""
    case = find(CASES, case_name)
    rows = [at[2] for at in case.inputs["spots"]]
    return {
        n: from_recipe(x, torch.float64, rows=rows if n in ("query", "visible") else None)
        for n, x in case.inputs["recipe"].items()
    }


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", [case for case in CASES if case.id == "C35"], ids=name)
def test_spots_of_a_mask_beyond_32_bits(case: Case, kernel: str) -> None:
    """The rows at the borders, each with its own row of the mask: no machine holds it all."""
    exact = at_the_borders(case.name)
    for dtype in case.dtypes:
        given = {n: x.to(dtype) if x.is_floating_point() else x for n, x in exact.items()}
        if kernel == "fused":
            given["value"] = torch.nn.functional.pad(given["value"], (0, 5))
        elif (kernel, dtype) == ("matmul", torch.float32):  # a slice of rows far apart: 2 GB
            shape = given["value"].shape
            apart = torch.empty(1, shape[1], shape[2], 4099, dtype=dtype)[..., 5:8]
            given["value"] = apart.copy_(given["value"])
        found = read(given, kernel, True, visible=given["visible"], scale=0.5)
        for position, spot in enumerate(case.expect["spots"]):
            at, tolerance = (*spot["at"][:2], position), case.tolerance(dtype) or 0
            right(f"output {spot['at']}", found[0][at][:3], array(spot["output"]), tolerance)
            assert found[1] is not None
            right(f"lse {spot['at']}", found[1][at], array(spot["lse"]), tolerance)
