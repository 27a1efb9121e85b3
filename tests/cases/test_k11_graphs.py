"""K11, frozen graphs: what is captured at one size is right at every other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.eval_frame import _debug_get_cache_entry_list

import crossattention as xa
from cases.book import Case, array, from_recipe, load
from cases.judge import right
from cases.runner import name

CASES = load("k11_graphs")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("reference", torch.float64),
        ("matmul", torch.float64),
        ("fused", torch.float32),
        ("auto", torch.float32),
    ],
    ids=str,
)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_case(case: Case, kernel: str, dtype: torch.dtype) -> None:
    def read(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        return xa.attend_with_lse(query, key, value, visible=visible, kernel=kernel)

    compiled = torch.compile(read, backend="aot_eager", fullgraph=True, dynamic=True)
    frozen = case.inputs["frozen"]
    sizes = [frozen["captured_at"], *frozen["run_at"]]
    for size, run in zip(sizes, [None, *case.expect["runs"]], strict=True):
        given = {n: from_recipe(x, dtype, size) for n, x in frozen["recipe"].items()}
        if kernel == "fused":  # it has one head width: columns of zeros more
            given["value"] = torch.nn.functional.pad(given["value"], (0, 125))
        output, lse = compiled(*(given[n] for n in ("query", "key", "value", "visible")))
        check_spots(case, run, (output, lse), dtype)
    graphs = len(_debug_get_cache_entry_list(read.__code__))
    assert 1 <= graphs <= 2, "a batch of one may have a graph of its own, no more"


def check_spots(case: Case, run: Any, found: tuple[Tensor, Tensor], dtype: torch.dtype) -> None:
    """Compare the rows that the case lists for one size."""
    for spot in run["spots"] if run else ():
        at, tolerance = tuple(spot["at"]), case.tolerance(dtype) or 0
        right(f"output {at}", found[0][at][:3], array(spot["output"]), tolerance)
        right(f"lse {at}", found[1][at], array(spot["lse"]), tolerance)


@pytest.mark.parametrize("kernel", ["reference", "matmul", "fused", "auto"])
@pytest.mark.parametrize("case", CASES, ids=name)
def test_case_without_a_graph(case: Case, kernel: str) -> None:
    for dtype in case.dtypes:
        for run in case.expect["runs"]:
            recipes = case.inputs["frozen"]["recipe"]
            given = {n: from_recipe(x, dtype, run["size"]) for n, x in recipes.items()}
            if kernel == "fused":
                given["value"] = torch.nn.functional.pad(given["value"], (0, 125))
            check_spots(case, run, xa.attend_with_lse(**given, kernel=kernel), dtype)


def test_one_capture_of_a_layer_and_its_gradients_at_three_sizes() -> None:
    torch.manual_seed(40)
    layer = xa.CrossAttention(6, 2, memory_width=5).eval()

    def read(query: Tensor, rows: Tensor, lengths: Tensor, visible: Tensor) -> Tensor:
        memory = layer.remember(rows, lengths, form="projected")
        return layer(query, memory, visible=visible)

    compiled = torch.compile(read, backend="aot_eager", fullgraph=True, dynamic=True)
    for b, t, s in ((2, 5, 7), (3, 2, 11), (5, 4, 3)):
        rows = torch.randn(b, s, 5)
        lengths = torch.randint(0, s + 1, (b,))
        rows.masked_fill_((torch.arange(s) >= lengths[:, None])[..., None], torch.nan)
        visible = torch.rand(b, 1, t, s) > 0.3
        visible[0, :, 1] = False
        query = torch.randn(b, t, 6, requires_grad=True)
        results = []
        for function in (compiled, read):
            output = function(query, rows, lengths, visible)
            assert not output[0, 1].any()
            leaves = [query, *layer.parameters()]
            results.append((output, *torch.autograd.grad(output.sin().sum(), leaves)))
        for ours, wanted in zip(*results, strict=True):
            torch.testing.assert_close(ours, wanted)
