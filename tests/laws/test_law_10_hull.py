"""Law 10. An output lies within the range of the values that its row may read.

Weights are at least 0 and sum to 1 before dropout. Dropout is off outside training on every path;
in training its mean over many draws is the undropped result, value biases and null rows included.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.nn import NullRow
from laws.ask import ask
from laws.given import Sizes, build, draw
from laws.table import FORMS, Case, cases, every

FUNCTIONS = every(
    door=("function",), form=("projected",), kept=("fresh",), mode=("eval", "train"),
    layout=("contiguous", "permuted", "sliced", "expanded batch", "no queries"),
)  # fmt: skip
SLACK = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_output_within_the_visible_values(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    read = ask(case, given).double()
    value = given.leaves["value"].double()
    groups = torch.arange(given.sizes.h, device=device) // (given.sizes.h // given.sizes.g)
    each = value[given.owner][:, groups][:, :, None]  # [m, g, s, e] -> [b, h, 1, s, e]
    seen = given.visible if given.bias is None else given.visible & (given.bias != -torch.inf)
    slack = SLACK[given.leaves["value"].dtype]
    low = each.masked_fill(~seen[..., None], torch.inf).amin(-2)
    high = each.masked_fill(~seen[..., None], -torch.inf).amax(-2)
    some = seen.any(-1)
    assert bool((read[some] >= low[some] - slack).all())
    assert bool((read[some] <= high[some] + slack).all())


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_weights_sum_to_one(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    weights = xa.attention_weights(
        given.leaves["query"], given.leaves["key"], **given.options, owner=given.owner,
        lengths=given.lengths, softcap=given.softcap,
    )  # fmt: skip
    seen = given.visible if given.bias is None else given.visible & (given.bias != -torch.inf)
    assert weights.dtype == torch.promote_types(given.leaves["query"].dtype, torch.float32)
    assert bool((weights >= 0).all()) and not weights[~seen].any()
    torch.testing.assert_close(weights.sum(-1), seen.any(-1).to(weights.dtype))


def dropping(null: bool, memory_heads: str, dropout: float) -> tuple[xa.CrossAttention, Tensor]:
    torch.manual_seed(1)
    sizes = Sizes.of(Case(heads=memory_heads))
    layer = build(sizes)
    layer.dropout = dropout
    if null:
        layer.null_row = NullRow(sizes.g, sizes.d, sizes.e).double()
        torch.nn.init.normal_(layer.null_row.value)
    return layer, torch.randn(2, 11, 23, dtype=torch.float64)


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", ["reference", "matmul", "auto"])
def test_dropout_is_off_outside_training(kernel: str, form: str, null: bool) -> None:
    layer, rows = dropping(null, "grouped", 0.5)
    layer.kernel = kernel
    query = torch.randn(2, 7, 19, dtype=torch.float64)
    memory = layer.remember(rows, [11, 4], form=form)
    plain, _ = dropping(null, "grouped", 0.0)
    wanted = plain(query, plain.remember(rows, [11, 4], form=form))
    torch.testing.assert_close(layer.eval()(query, memory), wanted, atol=1e-12, rtol=1e-12)
    assert not torch.allclose(layer.train()(query, memory), wanted)
    shown = layer.weights(query, memory)
    assert torch.equal(shown, layer.eval().weights(query, memory))


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", ["reference", "matmul"])
def test_the_mean_over_many_draws(kernel: str, form: str, null: bool) -> None:
    draws = 3000
    layer, rows = dropping(null, "each", 0.3)
    layer.kernel = kernel
    query = torch.randn(2, 1, 19, dtype=torch.float64)
    with torch.no_grad():
        memory = layer.remember(rows, [11, 4], form=form)
        whole = layer.eval()(query, memory)[:, 0]
        many = layer.train()(query.repeat_interleave(draws, 0), memory.shared_by(draws))
    many = many.view(2, draws, 19)
    error = (many.mean(1) - whole).abs()
    assert bool((many.std(1) > 0).all())
    assert bool((error < 5 * many.std(1) / draws**0.5).all())


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("memory_heads", ["each", "grouped"])
def test_both_forms_drop_alike(memory_heads: str, null: bool) -> None:
    """The value bias counts by the weights that are left; an empty row reads nothing at all."""
    layer, rows = dropping(null, memory_heads, 0.4)
    layer.train()
    query = torch.randn(2, 7, 19, dtype=torch.float64)
    outputs = []
    for form in FORMS:
        torch.manual_seed(2)
        outputs.append(layer(query, layer.remember(rows, [11, 0], form=form)))
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-11, rtol=1e-11)
    assert null or not outputs[0][1].any()


def test_a_function_drops_what_it_says() -> None:
    torch.manual_seed(3)
    query = torch.zeros(1, 1, 4000, 5)
    value = torch.ones(1, 1, 1, 5)
    for kernel in ("reference", "matmul", "auto"):
        read = xa.attend(query, value, value, dropout=0.3, kernel=kernel)[..., 0]
        torch.testing.assert_close(read.unique(), torch.tensor([0, 1 / 0.7]))
        assert abs(float((read == 0).float().mean()) - 0.3) < 5 * (0.21 / 4000) ** 0.5
    with pytest.raises(xa.NoKernelError, match="dropout"):
        xa.attend(query, value, value, dropout=0.3, kernel="fused")
