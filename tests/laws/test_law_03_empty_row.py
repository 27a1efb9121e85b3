"""Law 3. A query row that may read nothing reads exactly nothing, on every path.

Its value is exactly 0, its lse -inf, its gradients zero and all gradients finite; a layer adds no
output bias to it, so that a pre-norm residual stream is unchanged to the bit.
"""

from __future__ import annotations

import pytest
import torch
from torch.autograd import grad

import crossattention as xa
from crossattention.nn import DecoderBlock
from laws import modules
from laws.ask import ask, ask_lse, remember, right, right_layer
from laws.given import draw
from laws.table import EXACT, FORMS, Case, cases, every

EMPTYING = (
    "nothing visible", "visible of queries", "causal, lengths", "bias that hides", "visible",
    "bias, visible, lengths",
)  # fmt: skip
AXES = every(mask=EMPTYING, mode=("train",), size=("primes", "s=1", "s=65", "t=31"))
FUNCTIONS = {**AXES, "door": ("function",), "form": ("projected",), "kept": ("fresh",)}


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_function(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    leaves = [leaf.requires_grad_() for leaf in given.leaves.values()]
    empty = right(given).lse == -torch.inf
    value, (_, lse) = ask(case, given), ask_lse(case, given)
    assert not value[empty].any() and not value[empty].isnan().any()
    assert torch.equal(lse == -torch.inf, empty) and not lse.isnan().any()
    gradients = grad(value.sum(), leaves, materialize_grads=True)
    assert all(bool(each.isfinite().all()) for each in gradients)
    assert not gradients[0][empty].any()


@pytest.mark.parametrize("case", cases(**{**AXES, "door": ("layer",)}), ids=str)
def test_layer(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    assert given.layer is not None
    leaves = [leaf.requires_grad_() for leaf in given.leaves.values()]
    empty = (right_layer(given)[1].lse == -torch.inf).all(1)  # in every head
    output = ask(case, given)
    assert not output[empty].any() and not output[empty].isnan().any()
    asked = [*leaves, *given.layer.parameters()]
    gradients = grad(output.sum(), asked, materialize_grads=True)
    assert all(bool(each.isfinite().all()) for each in gradients)
    assert not gradients[0][empty].any()
    if bool(empty.all()):
        assert not any(bool(each.any()) for each in gradients)


@pytest.mark.parametrize("kernel", EXACT)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [0, 11])
def test_a_stream_that_reads_nothing_is_unchanged(rows: int, form: str, kernel: str) -> None:
    torch.manual_seed(1)
    block = DecoderBlock(12, 3, 17)
    layer = block.cross_attention
    layer.kernel = kernel
    torch.nn.init.normal_(layer.output_projection.bias)
    lengths = None if rows == 0 else [0, 7]
    memory = layer.remember(torch.randn(2, rows, 12), lengths, form=form)
    stream = torch.randn(2, 5, 12)
    added = block.around_cross(stream, lambda x: layer(x, memory))
    nothing = slice(None) if rows == 0 else 0
    assert torch.equal(added[nothing], stream[nothing])
    assert rows == 0 or not torch.equal(added[1], stream[1])


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_an_empty_row_are_zero(form: str) -> None:
    case = Case("layer", "auto", form, "remembered", "causal, lengths")
    given = draw(case, torch.device("cpu"))
    assert given.layer is not None
    memory = remember(case, given)
    shown = given.layer.weights(given.leaves["query"], memory, visible=given.visible)
    empty = ~given.visible.any(-1)
    assert bool(empty.any()) and not bool(empty.all())
    assert not shown[empty].any()
    torch.testing.assert_close(shown.sum(-1), (~empty).double())


def test_an_owner_without_rows_reads_nothing() -> None:
    key = torch.randn(2, 3, 11, 13)
    query = torch.randn(5, 3, 7, 13)
    read, lse = xa.attend_with_lse(query, key, key, owner=[1, 0, 0, 1, 1], lengths=[11, 0])
    assert not read[[0, 3, 4]].any() and bool((lse[[0, 3, 4]] == -torch.inf).all())
    assert bool(read[[1, 2]].any())


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
def test_modules_read_nothing_from_a_memory_without_rows(
    subject: modules.Subject, form: str
) -> None:
    module, (query, rows) = subject.build(), modules.given()
    inputs = query.requires_grad_(), rows.requires_grad_()
    for lengths, size in (([0, 0, 0], None), ([4, 0, 7], None), (None, 0)):
        memory = subject.remember(module, rows[:, :size], lengths, form)
        output = subject.read(module, query, memory)
        empty = output[1:2] if lengths == [4, 0, 7] else output
        assert empty.isfinite().all()
        if subject.empty == "zero":
            assert not empty.any()
        elif subject.empty == "query":
            assert torch.equal(empty, query[1:2] if lengths == [4, 0, 7] else query)
        if empty.requires_grad:
            found = torch.autograd.grad(
                empty.sum(), (*inputs, *module.parameters()), None, None, False, allow_unused=True
            )
            assert all(each is None or each.isfinite().all() for each in found)
            assert found[1] is None or not found[1].any()
