"""K10, gradients: to whoever asks, of its own shape, and nothing from what nobody reads."""

from __future__ import annotations

import itertools

import pytest
import torch

import crossattention as xa
from cases.book import Case, load
from cases.draws import problem, some_visible
from cases.paths import KERNELS, LAYERS, Path, compute
from cases.runner import EVERY_PATH, check, every_form, name

CASES = load("k10_gradients")
ASKERS = ("query", "key", "value", "bias")
SUBSETS = [x for n in range(1, 5) for x in itertools.combinations(ASKERS, n)]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_every_subset_that_may_ask(path: Path) -> None:
    torch.manual_seed(30)
    given = problem() | {"visible": some_visible(3, 1, 5, 7)}
    given["bias"] = torch.randn(1, 4, 1, 7, dtype=torch.float64)
    whole = compute(given, Path(path.form, "reference"), ASKERS)["grads"]
    for subset in SUBSETS:
        if path.kernel == "fused" and ("bias" in subset or path.form == "attend_with_lse"):
            with pytest.raises(xa.NoKernelError, match="has no gradient"):
                compute(given, path, subset)
            continue
        found = compute(given, path, subset)["grads"]
        assert found.keys() == set(subset)
        for what, gradient in found.items():
            torch.testing.assert_close(gradient, whole[what])


@pytest.mark.parametrize("shape", list(itertools.product((1, 3), (1, 4), (1, 5), (1, 7))), ids=str)
@pytest.mark.parametrize("kernel", ["reference", "matmul", "auto"])
def test_a_bias_gets_a_gradient_of_its_own_shape(kernel: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(31)
    given = problem()
    streams, upstream = [given[n] for n in ("query", "key", "value")], given["upstream"]
    bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    full = bias.detach().expand(3, 4, 5, 7).clone().requires_grad_()
    found = torch.autograd.grad(xa.attend(*streams, bias=bias, kernel=kernel), bias, upstream)[0]
    whole = torch.autograd.grad(xa.attend(*streams, bias=full, kernel=kernel), full, upstream)[0]
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    torch.testing.assert_close(found, whole.sum(axes, keepdim=True) if axes else whole)


@pytest.mark.parametrize("kernel", ["reference", "matmul"])
@pytest.mark.parametrize("form", ["attend", "projected", "raw"])
def test_second_derivatives(form: str, kernel: str) -> None:
    torch.manual_seed(32)
    given = problem(b=1, h=2, g=1, t=2, s=3, d=1, e=1)
    given["visible"] = torch.tensor([[True, False, True], [False, False, False]])[None, None]

    def read(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        if form == "attend":
            return xa.attend(query, key, value, visible=given["visible"], kernel=kernel)
        layer = _identity_layer(form, kernel)
        rows = (x.transpose(1, 2).flatten(2) for x in (query, key, value))
        stream, keys, values = rows
        memory = layer.remember(keys, value_rows=values, form=form)
        found: torch.Tensor = layer(stream, memory, visible=given["visible"])
        return found

    leaves = [given[n].requires_grad_() for n in ("query", "key", "value")]
    assert torch.autograd.gradcheck(read, leaves)
    assert torch.autograd.gradgradcheck(read, leaves)


def _identity_layer(form: str, kernel: str) -> xa.CrossAttention:
    layer = xa.CrossAttention(2, 2, memory_width=1, memory_heads=1, bias=False).double()
    for projection in ("query", "key", "value", "output"):
        torch.nn.init.eye_(layer.get_submodule(f"{projection}_projection").weight)
    layer.kernel = kernel
    return layer


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -torch.inf, 1e30])
@pytest.mark.parametrize("hidden_by", ["lengths", "visible", "bias", "causal"])
@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_garbage_that_nobody_reads(path: Path, hidden_by: str, garbage: float) -> None:
    torch.manual_seed(33)
    given, seen = problem(), (torch.arange(7) < 4)[None, None, None]
    given |= {
        "lengths": {"lengths": [4, 4, 4]},
        "visible": {"visible": seen},
        "bias": {"bias": torch.zeros(1, 1, 1, 7).double().masked_fill(~seen, -torch.inf)},
        "causal": {"query_offset": -1},
    }[hidden_by]
    dirty = dict(given)
    for n in ("key", "value"):
        dirty[n] = given[n].clone()
        dirty[n][:, :, 4:] = garbage
    wanted = [] if (path.kernel, path.form) == ("fused", "attend_with_lse") else ASKERS[:3]
    found, clean = compute(dirty, path, wanted), compute(given, path, wanted)
    for what in {"output", "weights", "lse"} & found.keys():
        torch.testing.assert_close(found[what], clean[what], atol=0, rtol=0)
    for what in wanted:
        torch.testing.assert_close(found["grads"][what], clean["grads"][what], atol=0, rtol=0)
        if what != "query":
            assert not found["grads"][what][:, :, 4:].any()


@pytest.mark.parametrize("hidden_by", ["lengths", "visible", "bias"])
@pytest.mark.parametrize("form", LAYERS)
def test_garbage_reaches_no_parameter(form: str, hidden_by: str) -> None:
    torch.manual_seed(34)
    layer = xa.CrossAttention(8, 2).double()
    query, rows = torch.randn(2, 3, 8).double(), torch.randn(2, 7, 8).double()
    seen = (torch.arange(7) < 4)[None, None, None]
    arguments = {
        "visible": {"visible": seen},
        "bias": {"bias": torch.zeros(1, 1, 1, 7).double().masked_fill(~seen, -torch.inf)},
    }.get(hidden_by, {})
    if form == "fresh" and hidden_by == "lengths":
        pytest.skip("rows that are read at once have no lengths")
    results = []
    for garbage in (0.0, torch.nan, torch.inf):
        dirty = rows.clone()
        dirty[:, 4:] = garbage
        dirty.requires_grad_()
        lengths = [4, 4] if hidden_by == "lengths" else None
        memory = dirty if form == "fresh" else layer.remember(dirty, lengths, form=form)
        output = layer(query, memory, **arguments)
        leaves = [dirty, *layer.parameters()]
        results.append((output, *torch.autograd.grad(output.sin().sum(), leaves)))
    for found in results[1:]:
        for ours, clean in zip(found, results[0], strict=True):
            torch.testing.assert_close(ours, clean)


@pytest.mark.parametrize("form", ["projected", "raw", "fresh"])
def test_the_key_bias_has_no_effect_and_no_gradient(form: str) -> None:
    torch.manual_seed(35)
    layer = xa.CrossAttention(8, 2, memory_width=5).double()
    query, rows = torch.randn(2, 3, 8).double(), torch.randn(2, 7, 5).double()
    visible = some_visible(2, 1, 3, 7)
    visible[1, :, 1] = False  # an empty row leaks nothing into it
    outputs = []
    for size in (0.0, 3.0):
        torch.nn.init.constant_(layer.key_projection.bias, size)
        memory = rows if form == "fresh" else layer.remember(rows, form=form)
        outputs.append(layer(query, memory, visible=visible))
        bias = layer.key_projection.bias
        gradient = torch.autograd.grad(outputs[-1].sin().sum(), bias)[0]
        assert float(gradient.abs().max()) < 1e-14
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != "fused"])
@pytest.mark.parametrize("form", LAYERS[:2])
def test_a_null_row_leaks_nothing_hidden(form: str, kernel: str) -> None:
    torch.manual_seed(36)
    given = problem(g=4) | {"zero_slot": True, "visible": some_visible(3, 1, 5, 7), "scale": 0.5}
    given["visible"][1] = False
    given["visible"][..., 6] = False
    found = compute(given, Path(form, kernel), ASKERS[:3])
    assert not found["output"][1].any()
    for what in ("key", "value"):
        assert not found["grads"][what][1].any()
        assert not found["grads"][what][:, :, 6].any()
    scores = 0.5 * given["query"] @ given["key"].transpose(2, 3)
    scores = scores.masked_fill(~given["visible"], -torch.inf)
    weights = torch.cat([scores, torch.zeros(3, 4, 5, 1)], -1).softmax(-1)[..., :-1]
    torch.testing.assert_close(found["weights"], weights)
    torch.testing.assert_close(found["output"], weights @ given["value"])
