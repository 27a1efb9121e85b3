"""K4, divergence between paths: no switch that should not matter matters."""

from __future__ import annotations

import itertools

import pytest
import torch

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem, some_visible
from cases.judge import right
from cases.paths import FORMS, KERNELS, LAYERS, Path, compute, masks
from cases.runner import EVERY_PATH, agree, check, every_form, name

CASES = load("k4_paths")
MERGES = [case for case in CASES if case.op == "merge" and "split" in case.inputs]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", MERGES, ids=name)
def test_parts_merge_to_the_whole(case: Case, kernel: str) -> None:
    for dtype in case.dtypes:
        given = case.tensors(dtype)
        if kernel == "fused":  # it has one head width
            given["value"] = given["value"][..., :2]
        expected, near = case.expected("output")[..., : given["value"].shape[-1]], 10.0
        cuts = zip(*(given[n].split(given["split"], a) for n, a in
                     (("key", 2), ("value", 2), ("visible", 3))), strict=True)  # fmt: skip
        parts = [
            xa.attend_with_lse(given["query"], k, v, visible=see, scale=1.0, kernel=kernel)
            for k, v, see in cuts
        ]
        near = case.tolerance(dtype) or near
        shapes = [list(lse.shape) for _, lse in parts]
        for (_, lse), part, shape in zip(parts, case.expect["part_lse"], shapes, strict=True):
            wanted = torch.tensor([float(x) for x in _flat(part)], dtype=torch.float64)
            right("lse of a part", lse, wanted.reshape(shape), near)
        orders = [xa.merge(order) for order in itertools.permutations(parts)]
        orders.append(xa.merge([xa.merge(parts[:2]), parts[2]]))
        orders.append(xa.merge([parts[0], xa.merge(parts[1:])]))
        for value, lse in orders:
            right("output", value, expected, near)
            right("lse", lse, case.expected("lse"), near)


def _flat(nested: object) -> list[object]:
    return [y for x in nested for y in _flat(x)] if isinstance(nested, list) else [nested]


def test_pairs_far_apart_merge_without_overflow() -> None:
    case = find(CASES, "pairs far apart, one part empty")
    for dtype in case.dtypes:
        parts = []
        for part in case.inputs["parts"]:
            given = Case("", "", "", "", {"dtype": []} | part, {}).tensors(dtype)
            parts.append((given["output"], given["lse"]))
        for order in itertools.permutations(parts):
            value, lse = xa.merge(order)
            right("output", value, case.expected("output"), case.tolerance(dtype) or 0)
            right("lse", lse, case.expected("lse"), case.tolerance(dtype) or 0)


@pytest.mark.parametrize("kernel", ["reference", "matmul", "auto"])
def test_gradients_flow_through_a_merge(kernel: str) -> None:
    torch.manual_seed(10)
    given = problem(g=4) | {"visible": some_visible(3, 1, 5, 7)}
    given["visible"][1], given["visible"][2, ..., 3:] = False, False  # an empty row, an empty part
    leaves = [given[n].requires_grad_() for n in ("query", "key", "value")]
    query, key, value = leaves
    whole = xa.attend_with_lse(query, key, value, visible=given["visible"], kernel=kernel)
    parts = xa.merge([
        xa.attend_with_lse(
            query, key[:, :, cut], value[:, :, cut], visible=given["visible"][..., cut],
            kernel=kernel,
        )
        for cut in (slice(0, 3), slice(3, 4), slice(4, 7))
    ])  # fmt: skip
    for ours, wanted in zip(_gradients(parts, leaves), _gradients(whole, leaves), strict=True):
        torch.testing.assert_close(ours, wanted)


def _gradients(
    found: tuple[torch.Tensor, torch.Tensor], leaves: list[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    loss = found[0].sin().sum() + found[1].masked_fill(found[1] == -torch.inf, 0).cos().sum()
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mask", ["none", "lengths", "visible", "causal"])
def test_switches_that_must_not_matter(form: str, mask: str) -> None:
    torch.manual_seed(11)
    given = problem(h=1, g=1) if form == "headless" else problem()
    given |= {"none": {}, "lengths": {"lengths": [7, 0, 4]}, "causal": {"query_offset": 1},
              "visible": {"visible": some_visible(3, 1, 5, 7)}}[mask]  # fmt: skip
    first = compute(given, Path(form, "reference"))
    modes = [("eval", 0.0), ("eval", 0.3), ("train", 0.0)] if form in LAYERS else [("eval", 0.0)]
    for kernel, maps, grad, (mode, dropout) in itertools.product(
        KERNELS, (False, True), (False, True), modes
    ):
        wanted = ["query"] if grad and (kernel, form) != ("fused", "attend_with_lse") else []
        path = Path(form, kernel, maps=maps, grad=grad, mode=mode, dropout=dropout)
        found = compute(given, path, wanted)
        agree({n: x for n, x in found.items() if n != "grads"}, first)


@pytest.mark.parametrize("calls", [1, 2, 3, 5])
@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_query_rows_may_come_in_pieces(path: Path, calls: int) -> None:
    torch.manual_seed(12)
    given = problem() | {"visible": some_visible(3, 1, 1, 7), "lengths": [7, 2, 5]}
    pieces = Path(path.form, path.kernel, queries_per_call=calls)
    agree(compute(given, pieces), compute(given, path))


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_hiding_one_more_row_changes_the_output(path: Path) -> None:
    given = find(CASES, "lengths step by step").tensors(torch.float64)
    given["value"] += torch.arange(3)[:, None]
    one = Path(path.form, path.kernel, queries_per_call=1)
    outputs = [compute(given | {"lengths": [n, 1]}, one)["output"] for n in (3, 2, 1)]
    assert all(not torch.allclose(a[0], b[0]) for a, b in itertools.combinations(outputs, 2))
    assert all(torch.equal(a[1], b[1]) for a, b in itertools.combinations(outputs, 2))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_given_mask_counts_beside_a_causal_order(kernel: str) -> None:
    given = find(CASES, "causal beside maps and dropout").tensors(torch.float64)
    streams = [given[n] for n in ("query", "key", "value")]
    visible = torch.tensor([[True, False, True]] * 4)
    both = visible & torch.ones(4, 3).tril().bool()
    for function in (xa.attend, xa.attend_with_lse):
        left = function(*streams, visible=visible, causal="top_left", kernel=kernel)
        torch.testing.assert_close(left, function(*streams, visible=both, kernel=kernel))
        for wrong in (visible[:, :2], visible[:3], visible[None]):
            with pytest.raises(xa.ContractError, match="`visible` must be of shape"):
                function(*streams, visible=wrong, causal="top_left", kernel=kernel)


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_a_silent_head_contributes_nothing(form: str) -> None:
    given = find(CASES, "a head that may read nothing").tensors(torch.float64)
    without = given["w_o"].clone()
    without[:, 2] = 0
    everything = {n: x for n, x in given.items() if n != "visible"} | {"w_o": without}
    found = compute(given, Path(form))
    torch.testing.assert_close(found["output"], compute(everything, Path(form))["output"])
    value = torch.einsum("msc,hec->mhse", given["memory"], given["w_v"])
    read = found["weights"] @ value
    mixed = torch.einsum("bhte,ohe->bto", read, given["w_o"]) + given["b_o"]
    torch.testing.assert_close(found["output"], mixed)
    assert masks(given)["scale"] == 0.5
