"""K2, the meaning of a mask: True = may be read, a float is added, and masks combine by AND."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem, some_visible
from cases.paths import KERNELS, LAYERS, Path, compute, offered
from cases.runner import EVERY_PATH, agree, check, every_form, name

CASES = load("k2_masks")
REAL = [7, 4, 1]
PADDING = torch.arange(7) >= torch.tensor(REAL)[:, None]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


def forms_of_padding() -> dict[str, dict[str, Any]]:
    """Write one hidden set in every accepted form."""
    visible = xa.from_padding_mask(PADDING)
    bias = torch.zeros(3, 1, 1, 7, dtype=torch.float64).masked_fill(~visible, -torch.inf)
    half = visible | (torch.arange(7) % 2 == 0)
    return {
        "lengths": {"lengths": REAL},
        "length tensor": {"lengths": torch.tensor(REAL, dtype=torch.int32)},
        "padding mask": {"visible": visible},
        "integer attention mask": {"visible": xa.from_attention_mask((~PADDING).long())},
        "boolean attention mask": {"visible": xa.from_attention_mask(~PADDING)},
        "every cell": {"visible": visible.expand(3, 4, 5, 7).clone()},
        "expanded": {"visible": visible.expand(3, 4, 5, 7)},
        "hidden": {"hidden": ~visible},
        "bias": {"bias": bias},
        "bias in half precision": {"bias": bias.half()},
        "bias of every cell": {"bias": bias.expand(3, 4, 5, 7).clone()},
        "two that combine": {"visible": half, "bias": bias},
        "all at once": {"visible": visible, "bias": bias, "lengths": REAL},
    }


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_one_hidden_set_in_every_form(path: Path) -> None:
    torch.manual_seed(1)
    given, wanted = problem(), offered(path, ("query", "key", "value"))
    found = {n: compute(given | form, path, wanted) for n, form in forms_of_padding().items()}
    first = found["lengths"]
    assert not bool(first["weights"].masked_fill(first["see"], 0).any())
    for other in found.values():
        agree(other, first)
    for sequence, real in enumerate(REAL):  # and the same as memories that end there
        alone = {n: x[sequence : sequence + 1] for n, x in given.items()}
        alone["key"], alone["value"] = alone["key"][:, :, :real], alone["value"][:, :, :real]
        short = compute(alone, path)
        torch.testing.assert_close(first["output"][sequence : sequence + 1], short["output"])


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
@pytest.mark.parametrize("offset", [-2, 0, 2, 9, -9])
def test_causal_order_in_every_form(path: Path, offset: int) -> None:
    torch.manual_seed(2)
    given, visible = problem(), some_visible(3, 1, 1, 7)
    triangle = torch.arange(7) <= torch.arange(5)[:, None] + offset
    bias = torch.zeros(5, 7).masked_fill(~triangle, -torch.inf)[None, None]
    same: list[dict[str, Any]] = [
        {"query_offset": offset, "visible": visible},
        {"visible": visible & triangle},
        {"visible": visible, "bias": bias},
        {"visible": triangle[None, None], "bias": torch.zeros(1).where(visible, -torch.inf)},
    ]
    first, *others = (compute(given | form, path) for form in same)
    for other in others:
        agree(other, first)


def test_a_mask_of_rank_two_is_rows_by_memory_rows() -> None:
    torch.manual_seed(3)
    streams, visible = [problem()[n] for n in ("query", "key", "value")], some_visible(5, 7)
    for kernel in KERNELS:
        left = xa.attend(*streams, visible=visible, kernel=kernel)
        torch.testing.assert_close(left, xa.attend(*streams, visible=visible[None, None]))
        bias = visible.double()
        left = xa.attend(*streams, bias=bias, kernel=kernel)
        torch.testing.assert_close(left, xa.attend(*streams, bias=bias[None, None]))


def test_a_boolean_hides_and_a_float_is_added() -> None:
    torch.manual_seed(4)
    query, key, _ = (problem()[n] for n in ("query", "key", "value"))
    mask = some_visible(3, 1, 5, 7)
    plain, hidden = xa.attention_weights(query, key), xa.attention_weights(query, key, visible=mask)
    assert torch.equal(hidden > 0, mask.expand_as(hidden))
    added = xa.attention_weights(query, key, bias=mask.double())
    torch.testing.assert_close(added, torch.softmax(plain.log() + mask.double(), -1))


@pytest.mark.parametrize("form", LAYERS)
def test_training_and_evaluation_read_a_bias_alike(form: str) -> None:
    case = find(CASES, "zeros and ones as a bias")
    given = case.tensors(torch.float64)
    for mode in ("train", "eval"):
        found = compute(given, Path(form, mode=mode))
        torch.testing.assert_close(found["output"], case.expected("output"))


@pytest.mark.parametrize("kernel", KERNELS)
def test_lowest_floats_that_overflow_hide_and_leave_no_nan(kernel: str) -> None:
    low = torch.finfo(torch.float32).min
    torch.manual_seed(5)
    given = problem(torch.float32, h=2, t=3, s=5)
    streams = [given[n].requires_grad_() for n in ("query", "key", "value")]
    bias = torch.full((1, 1, 3, 5), low)
    bias[..., 0] += low  # -inf: two masks added, and this row was hidden by both
    found = xa.attend(*streams, bias=bias, scale=1.0, kernel=kernel)
    mean = streams[2][:, :, 1:].mean(2, keepdim=True).expand(-1, -1, 3, -1)
    torch.testing.assert_close(found, mean)
    for gradient in torch.autograd.grad(found.sum(), streams):
        assert bool(gradient.isfinite().all())
