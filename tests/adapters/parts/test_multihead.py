"""An adopted `torch.nn.MultiheadAttention` gives torch's numbers, and never torch's NaN."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from crossattention.adapters.parts.multihead import Multihead
from crossattention.adapters.parts.replaced import is_replaced, restore
from crossattention.errors import ContractError

B, H, C, T, S = 2, 3, 12, 5, 7  # of the tests; heads are of width 4


def adopted(module: nn.MultiheadAttention, form: str = "auto") -> nn.MultiheadAttention:
    """Adopt a copy."""
    copied = copy.deepcopy(module)
    Multihead().check(copied, form)
    Multihead().adopt(copied, form)
    return copied


def streams(module: nn.MultiheadAttention, t: int = T, s: int = S) -> tuple[Tensor, ...]:
    """Draw query, key and value in the module's layout."""
    drawn = (
        torch.randn(B, t, C),
        torch.randn(B, s, module.kdim),
        torch.randn(B, s, module.vdim),
    )
    drawn = tuple(x.to(module.out_proj.weight.dtype) for x in drawn)
    return drawn if module.batch_first else tuple(x.transpose(0, 1) for x in drawn)


def bool_masks(s: int = S) -> dict[str, Tensor]:
    """Masks, True = hidden, that leave each row something to read."""
    padding = torch.arange(s) >= torch.tensor([s, s - 3])[:, None]
    mask = torch.rand(B * H, T, s) < 0.4
    mask[..., 0] = False
    return {"key_padding_mask": padding, "attn_mask": mask}


def float_masks() -> dict[str, Tensor]:
    """Additive masks; -inf hides."""
    return {
        name: torch.randn(mask.shape).masked_fill(mask, -torch.inf)
        for name, mask in bool_masks().items()
    }


KINDS = {
    "plain": {},
    "unbiased": {"bias": False},
    "widths": {"kdim": 5, "vdim": 11},
    "null": {"add_bias_kv": True},
    "zero": {"add_zero_attn": True},
    "both": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 5, "vdim": 11},
}


@pytest.mark.parametrize("masks", [dict, bool_masks, float_masks], ids=["all", "bool", "float"])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_torch(kind: str, batch_first: bool, masks: object) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=batch_first, **KINDS[kind]).double()
    nn.init.normal_(module.out_proj.weight)
    forms = ("auto", "projected") if module.bias_k is not None or module.add_zero_attn else (
        "auto", "projected", "raw"
    )  # fmt: skip
    given, hiding = streams(module), masks()  # type: ignore[operator]
    hiding = {k: v.double() if v.is_floating_point() else v for k, v in hiding.items()}
    for form, need, average in itertools.product(forms, (True, False), (True, False)):
        options = {"need_weights": need, "average_attn_weights": average} | hiding
        want = module(*given, **options)
        got = adopted(module, form)(*given, **options)
        torch.testing.assert_close(got[0], want[0])
        assert (got[1] is None) is (want[1] is None)
        if want[1] is not None:
            torch.testing.assert_close(got[1], want[1])


def test_mixed_and_two_dimensional_masks() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    query, key, _ = streams(module)
    masks = bool_masks()
    added = torch.randn(T, S)
    for options in (
        {"attn_mask": added},
        {"attn_mask": masks["attn_mask"][0]},
        {"attn_mask": added, "key_padding_mask": masks["key_padding_mask"]},
    ):
        want, weights = module(query, key, key, **options)
        got, shown = adopted(module)(query, key, key, **options)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(shown, weights)


@pytest.mark.parametrize("t", [1, T])
def test_unbatched(t: int) -> None:
    torch.manual_seed(0)
    for batch_first in (True, False):
        module = nn.MultiheadAttention(C, H, batch_first=batch_first, kdim=5, vdim=5)
        query, key = torch.randn(t, C), torch.randn(S, 5)
        options = {
            "key_padding_mask": torch.arange(S) > 4,
            "attn_mask": torch.rand(H, t, S).lt(0.3) & torch.arange(S).gt(0),
        }
        want, weights = module(query, key, key, **options)
        got, shown = adopted(module)(query, key, key, **options)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(shown, weights)


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_row_that_may_read_nothing_gets_the_output_bias(form: str, need_weights: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    nn.init.normal_(module.out_proj.bias)
    nn.init.normal_(module.in_proj_bias)
    query, key, _ = streams(module)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1] = True
    key[1] = torch.nan  # hidden from all: it may hold anything
    layer = adopted(module, form)
    out, weights = layer(query, key, key, key_padding_mask=padding, need_weights=need_weights)
    torch.testing.assert_close(out[1], module.out_proj.bias.expand(T, C))
    torch.testing.assert_close(out[0], module(query[:1], key[:1], key[:1])[0][0])
    if weights is not None:
        assert weights[1].abs().max() == 0
    out.sum().backward()
    assert all(each.grad.isfinite().all() for each in layer.parameters())


@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
def test_training_is_unchanged(form: str) -> None:
    """The same loss and gradients; with dropout, the same draws from the same seed."""
    module = nn.MultiheadAttention(C, H, dropout=0.3, batch_first=True).double()
    for need_weights in (True, False):
        gradients = []
        for layer in (module, adopted(module, form)):
            torch.manual_seed(1)
            given = [x.requires_grad_() for x in streams(module)]
            out, weights = layer(*given, need_weights=need_weights)
            loss = out.square().sum() + (0 if weights is None else weights.square().sum())
            gradients.append(torch.autograd.grad(loss, [*given, *layer.parameters()]))
        for got, want in zip(*gradients, strict=True):
            torch.testing.assert_close(got, want)


def test_self_attention_is_torch_s_own() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True).eval()
    stream = torch.randn(B, T, C)
    mask = torch.ones(T, T, dtype=torch.bool)
    want = module(stream, stream, stream, attn_mask=mask)[0]
    got = adopted(module)(stream, stream, stream, attn_mask=mask)[0]
    assert torch.equal(got.nan_to_num(7), want.nan_to_num(7))


def test_nothing_else_changes_and_release_restores() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    layer = adopted(module)
    assert type(layer) is type(module)
    assert list(layer.state_dict()) == list(module.state_dict())
    given = streams(module)
    restore(layer)
    assert vars(layer).keys() == vars(module).keys()
    assert torch.equal(layer(*given)[0], module(*given)[0])


def test_copies_read_their_own_weights() -> None:
    torch.manual_seed(0)
    layer = adopted(nn.MultiheadAttention(C, H, batch_first=True), "raw")
    copied = copy.deepcopy(layer)
    assert is_replaced(copied)
    assert copied.forward.module is copied
    given = streams(layer)
    before = layer(*given)[0]
    with torch.no_grad():
        copied.in_proj_weight.mul_(2)
    assert torch.equal(layer(*given)[0], before)
    assert not torch.allclose(copied(*given)[0], before)


def test_pickles_stay_adopted_and_read_their_own_weights() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    loaded = pickle.loads(pickle.dumps(adopted(module, "raw")))
    assert is_replaced(loaded)
    assert loaded.forward.module is loaded
    given = streams(module)
    torch.testing.assert_close(loaded(*given)[0], module(*given)[0])


@pytest.mark.parametrize("change", ["data", "assign", "to", "functional"])
def test_weights_are_read_as_they_are_now(change: str) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    layer, given = adopted(module, "raw"), streams(module, t=1)
    layer(*given)
    other = nn.MultiheadAttention(C, H, batch_first=True)
    if change == "functional":
        got = torch.func.functional_call(layer, dict(other.named_parameters()), given)[0]
    else:
        if change == "data":
            for mine, theirs in zip(layer.parameters(), other.parameters(), strict=True):
                mine.data.copy_(theirs.data)
        elif change == "assign":
            layer.load_state_dict(other.state_dict(), assign=True)
        else:
            layer.load_state_dict(other.state_dict())
            layer, other = layer.double(), other.double()
            given = tuple(x.double() for x in given)
        got = layer(*given)[0]
    torch.testing.assert_close(got, other(*given)[0])


def test_what_torch_refuses_torch_refuses() -> None:
    module = nn.MultiheadAttention(C, H, batch_first=True)
    layer, (query, key, _) = adopted(module), streams(module)
    for options in (
        {"attn_mask": torch.zeros(T, S + 1, dtype=torch.bool)},
        {"key_padding_mask": torch.zeros(B, S, dtype=torch.long)},
        {"is_causal": True},
        {"is_causal": True, "key_padding_mask": torch.zeros(B, S, dtype=torch.bool)},
    ):
        with pytest.raises((AssertionError, RuntimeError)) as stock:
            module(query, key, key, **options)
        with pytest.raises(type(stock.value)) as ours:
            layer(query, key, key, **options)
        assert str(ours.value) == str(stock.value)
    with pytest.raises((AssertionError, RuntimeError)):
        layer(query, key[:1], key[:1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    given = streams(module)
    want = module(*given)[0]
    for form in ("projected", "raw"):
        with torch.autocast("cpu", dtype):
            stock, stock_weights = module(*given)
            got, weights = adopted(module, form)(*given)
        assert got.dtype == stock.dtype
        assert weights.dtype == stock_weights.dtype
        torch.testing.assert_close(got.float(), want, atol=0.03, rtol=0.03)
        half = copy.deepcopy(module).to(dtype)
        got = adopted(half, form)(*(x.to(dtype) for x in given))[0]
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), want, atol=0.03, rtol=0.03)


def test_compiled() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True).eval()
    given = streams(module)
    whole = torch.compile(adopted(module, "raw"), backend="eager", fullgraph=True)
    torch.testing.assert_close(whole(*given)[0], module(*given)[0])


def test_the_raw_form_is_refused_at_adopt_where_rows_stand_behind() -> None:
    with pytest.raises(ContractError, match="add_bias_kv"):
        adopted(nn.MultiheadAttention(C, H, add_bias_kv=True), "raw")


def test_a_wrapped_forward_is_refused() -> None:
    module = nn.MultiheadAttention(C, H)
    module.forward = lambda *given: given  # type: ignore[method-assign]
    with pytest.raises(ContractError, match="wrapped"):
        Multihead().check(module, "auto")


def test_one_query_row_projects_nothing() -> None:
    """A query over many rows reads them as they are."""
    module = nn.MultiheadAttention(96, 4, batch_first=True).eval()
    query, rows = torch.randn(B, 1, 96), torch.randn(B, 499, 96)
    totals = []
    for layer in (module, adopted(module)):
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            layer(query, rows, rows)
        totals.append(counted.get_total_flops())
    assert 5 * totals[1] < totals[0]


def test_where_nothing_is_gained_torch_answers() -> None:
    """To the bit; a mask may hide all from a row, so those reads are ours."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(C, H, batch_first=True)
    given = streams(module)
    assert torch.equal(adopted(module)(*given)[0], module(*given)[0])
    everything = torch.ones(B, S, dtype=torch.bool)
    assert module(*given, key_padding_mask=everything)[0].isnan().all()
    assert adopted(module)(*given, key_padding_mask=everything)[0].isfinite().all()
