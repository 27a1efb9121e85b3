from __future__ import annotations

import math

import pytest
import torch

from crossattention.attention.choose import KERNELS, choose, seconds
from crossattention.attention.door import enter
from crossattention.attention.explain import explain
from crossattention.errors import ContractError
from crossattention.kernels.matmul import Matmul

ARGUMENTS = {
    "visible": None, "bias": None, "lengths": None, "owner": None, "causal": None,
    "softcap": None, "scale": None, "dropout": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("t", [1, 700])
@pytest.mark.parametrize("given", [{}, {"softcap": 3.0}, {"dropout": 0.1}, {"causal": "top_left"}])
def test_it_says_what_attend_does(t: int, given: dict[str, object]) -> None:
    query, key = torch.zeros(2, 3, t, 8), torch.zeros(2, 3, 701, 8)
    problem, _ = enter(query, key, key, **(ARGUMENTS | given))
    found = explain(query, key, key, **given)
    assert found.chosen == choose(problem).name
    for kernel, each in zip(KERNELS, found.kernels, strict=True):
        assert each.name == kernel.name and list(each.refusals) == kernel.refuses(problem)
        assert each.multiply_adds == kernel.cost(problem).multiply_adds
        assert each.bytes == kernel.cost(problem).bytes
        assert each.seconds == seconds(kernel, problem)
    accepted = [each for each in found.kernels if not each.refusals]
    assert found.chosen == min(accepted, key=lambda each: each.seconds).name


def test_a_refusal_is_said_not_raised() -> None:
    query = torch.empty(1, 2, 3, 4, device="meta")
    found = explain(query, query, query, softcap=2.0, kernel="fused")
    assert found.chosen is None and "refuses: it has no soft cap" in str(found)
    assert explain(query, query, query, kernel="reference").chosen == "reference"


def test_a_kernel_of_the_callers_own_has_no_known_speed() -> None:
    query = torch.zeros(1, 2, 3, 4)
    found = explain(query, query, query, kernel=Matmul(name="mine"))
    assert found.chosen == "mine" and math.isnan(found.kernels[-1].seconds)


def test_wrong_shapes_are_an_error() -> None:
    with pytest.raises(ContractError):
        explain(torch.zeros(1, 2, 3, 4), torch.zeros(1, 2, 3, 5), torch.zeros(1, 2, 3, 5))
