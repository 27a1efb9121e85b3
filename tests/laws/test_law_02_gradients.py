"""Law 2. Every gradient is the definition's: of query, key, value, bias and every projection.

Through the log-sum-exp as well, for every subset of inputs that ask; a broadcast bias receives the
sum, in its own shape. Second derivatives are right, or refused by name: never silently zero.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad, gradcheck, gradgradcheck

import crossattention as xa
from laws import modules
from laws.ask import ask, ask_lse, right, right_layer
from laws.given import draw
from laws.table import EXACT, FORMS, MASKS, OWNERS, Case, cases, every

NAMES = ("query", "key", "value", "bias")
SUBSETS = tuple(" ".join(some) for n in (1, 2, 3, 4) for some in combinations(NAMES, n))
BIASED = tuple(mask for mask in MASKS if "bias" in mask)
TRAINED = every(mode=("train",), dtype=("float64",), size=("primes", "wide values", "s=1", "s=33"))
FUNCTIONS = {**TRAINED, "door": ("function",), "form": ("projected",), "kept": ("fresh",)}
LAYERS = {**TRAINED, "door": ("layer",)}


def close(ours: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(ours, wanted, atol=1e-10, rtol=1e-10)


def asking(leaves: dict[str, Tensor], names: str) -> list[Tensor]:
    return [leaf.requires_grad_() for name, leaf in leaves.items() if name in names.split()]


@pytest.mark.parametrize("case", cases(**{**FUNCTIONS, "wants": SUBSETS, "mask": BIASED}), ids=str)
def test_each_subset_of_inputs(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    asked = asking(given.leaves, case.wants)
    found, wanted = ask(case, given), right(given).value
    upstream = torch.randn_like(wanted)
    gradients = grad(found, asked, upstream, allow_unused=True)
    for leaf, ours, theirs in zip(
        asked, gradients, grad(wanted, asked, upstream, materialize_grads=True), strict=True
    ):
        assert ours is not None or not theirs.any()
        close(torch.zeros_like(leaf) if ours is None else ours, theirs)


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_through_value_and_lse(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    asked = asking(given.leaves, "query key value bias")
    exact = right(given)
    pairs = (ask_lse(case, given), (exact.value, exact.lse))
    losses = [v.sin().sum() + e.masked_fill(e == -torch.inf, 0).cos().sum() for v, e in pairs]
    ours, wanted = (grad(loss, asked, materialize_grads=True) for loss in losses)
    for one, other in zip(ours, wanted, strict=True):
        close(one, other)


@pytest.mark.parametrize("case", cases(**LAYERS), ids=str)
def test_every_parameter_of_a_layer(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    assert given.layer is not None
    asked = [*asking(given.leaves, "query rows bias"), *given.layer.parameters()]
    found, (wanted, _) = ask(case, given), right_layer(given)
    upstream = torch.randn_like(wanted)
    ours = grad(found, asked, upstream, materialize_grads=True)
    for one, other in zip(ours, grad(wanted, asked, upstream, materialize_grads=True), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float32 bias"])
@pytest.mark.parametrize("door", ["function", "layer"])
@pytest.mark.parametrize("kernel", EXACT)
def test_narrow_gradients(kernel: str, door: str, dtype: str, device: torch.device) -> None:
    case = Case(door, kernel, mask="bias, visible, lengths", dtype=dtype, mode="train")
    given = draw(case, device)
    asked = [leaf.requires_grad_() for leaf in given.leaves.values()]
    exact = right(given).value if door == "function" else right_layer(given)[0]
    ours, wanted = grad(ask(case, given).sum(), asked), grad(exact.sum(), asked)
    for leaf, one, other in zip(asked, ours, wanted, strict=True):
        assert one.dtype == leaf.dtype and bool(one.isfinite().all())
        limit = 0.05 if dtype != "float32" else 1e-5
        torch.testing.assert_close(one, other, atol=limit, rtol=limit)


def small(kernel: str, mask: str, owner: str) -> tuple[Callable[..., Any], list[Tensor]]:
    """A function of query, key, value and bias that reads with a kernel, and its arguments."""
    torch.manual_seed(3)
    index = {"own": [0, 1], "scattered": [1, 0, 1]}[owner]
    query = torch.randn(len(index), 2, 3, 3, dtype=torch.float64)
    key, value = (torch.randn(2, 1, 4, 3, dtype=torch.float64) for _ in "kv")
    options: dict[str, Any] = {"lengths": [3, 0]} if mask == "lengths" else {}
    if mask == "visible":
        options["visible"] = torch.rand(3, 4) > 0.4
    arguments = [query, key, value]
    if mask == "bias":
        arguments.append(torch.randn(1, 2, 1, 4, dtype=torch.float64))

    def run(*given: Tensor) -> Any:
        bias = {"bias": given[3]} if mask == "bias" else {}
        if kernel == "fused":
            return xa.attend(*given[:3], owner=index, kernel=kernel, **bias, **options)
        value, lse = xa.attend_with_lse(
            *given[:3], owner=index, kernel=kernel, softcap=1.5, **bias, **options
        )
        return value, lse.masked_fill(lse == -torch.inf, 0)

    return run, [argument.requires_grad_() for argument in arguments]


@pytest.mark.parametrize("owner", ["own", "scattered"])
@pytest.mark.parametrize("mask", ["none", "lengths", "visible", "bias"])
@pytest.mark.parametrize("kernel", EXACT)
def test_gradcheck(kernel: str, mask: str, owner: str) -> None:
    run, arguments = small(kernel, mask, owner)
    if kernel == "fused" and mask == "bias":
        with pytest.raises(xa.NoKernelError, match="bias has no gradient"):
            run(*arguments)
        return
    assert gradcheck(run, arguments, raise_exception=False)


@pytest.mark.parametrize("owner", ["own", "scattered"])
@pytest.mark.parametrize("mask", ["none", "lengths", "visible", "bias"])
@pytest.mark.parametrize("kernel", ["reference", "matmul"])
def test_second_derivatives_are_right(kernel: str, mask: str, owner: str) -> None:
    run, arguments = small(kernel, mask, owner)
    assert gradgradcheck(run, arguments, raise_exception=False)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("owner", OWNERS)
def test_second_derivatives_are_refused_by_name(owner: str, form: str) -> None:
    case = Case("layer", "fused", form, "remembered", "lengths", mode="train", owner=owner)
    given = draw(case, torch.device("cpu"))
    asked = asking(given.leaves, "query rows")
    first = grad(ask(case, given).sin().sum(), asked, create_graph=True)
    assert all(bool(each.isfinite().all()) for each in first)
    for one in first:
        with pytest.raises((RuntimeError, ValueError)) as refusal:
            grad(one.sum(), asked, retain_graph=True)
        assert isinstance(refusal.value, xa.NoKernelError), refusal.value
        assert all(each in str(refusal.value) for each in ("`fused`", "matmul", "reference"))


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
def test_modules_have_the_gradients_of_their_values(subject: modules.Subject, form: str) -> None:
    module, (query, rows) = subject.build(), modules.given()
    names = [name for name, _ in module.named_parameters()]

    def read(query: torch.Tensor, rows: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        with torch.nn.utils.stateless._reparametrize_module(
            module, dict(zip(names, weights, strict=True))
        ):
            return subject.read(module, query, subject.remember(module, rows, [7, 0, 3], form))

    inputs = [query, rows, *(each.detach().clone() for each in module.parameters())]
    assert torch.autograd.gradcheck(read, [x.requires_grad_() for x in inputs], fast_mode=True)


@pytest.mark.parametrize("subject", modules.SUBJECTS, ids=str)
def test_modules_have_the_same_gradients_in_both_forms(subject: modules.Subject) -> None:
    module, (query, rows) = subject.build(), modules.given()
    found = []
    for form in modules.FORMS:
        read = subject.read(module, query, subject.remember(module, rows, modules.LENGTHS[0], form))
        found.append(torch.autograd.grad(read.square().sum(), list(module.parameters())))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
