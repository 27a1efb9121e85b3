"""Law 13. The same numbers as other people's code, where theirs is defined.

`scaled_dot_product_attention`, `nn.MultiheadAttention`, and the cross-attention of tiny random
Hugging Face models, loaded with the same weights.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import crossattention as xa
from laws.given import draw
from laws.table import EXACT, FORMS, LAYOUTS, Case, cases, every

FUNCTIONS = every(
    door=("function",), form=("projected",), kept=("fresh",), owner=("own",), softcap=("none",),
    mask=("none", "visible", "visible of queries", "bias", "bias of a head", "top left"),
    layout=LAYOUTS[:-1], dtype=("float64", "float32"), mode=("eval", "train"),
)  # fmt: skip


@pytest.mark.parametrize("case", cases(**FUNCTIONS), ids=str)
def test_scaled_dot_product_attention(case: Case, device: torch.device) -> None:
    given = draw(case, device)
    query, key, value = (given.leaves[name] for name in ("query", "key", "value"))
    mask: Tensor | None = given.bias
    if case.mask not in ("none", "bias", "bias of a head"):
        mask = given.visible
    theirs = F.scaled_dot_product_attention(
        query.contiguous(), key.contiguous(), value.contiguous(), attn_mask=mask, enable_gqa=True
    )
    refused = {"fused": case.size == "wide values", "native": case.dtype == "float64"}
    named = "auto" if refused.get(case.kernel) else case.kernel
    ours = xa.attend(query, key, value, **given.options, kernel=named)
    reads = given.visible.any(-1, keepdim=True)  # what torch gives to an empty row is its own
    tolerance = 1e-11 if case.dtype == "float64" else 1e-5
    found, wanted = ours.where(reads, 0), theirs.where(reads, 0)
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


OPTIONS = (
    {}, {"kdim": 5, "vdim": 3}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
)  # fmt: skip


@pytest.mark.parametrize("kernel", EXACT)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_multihead_attention(options: dict[str, Any], form: str, kernel: str) -> None:
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True, **options).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    layer = xa.from_torch(theirs)
    fused_runs = form == "projected" or "vdim" not in options
    with torch.no_grad():
        query = torch.randn(2, 5, 12).double()
        key, value = (torch.randn(2, 7, width).double() for width in (theirs.kdim, theirs.vdim))
        padding = torch.arange(7) >= torch.tensor([4, 7])[:, None]
        wanted, maps = theirs(
            query, key, value, key_padding_mask=padding, average_attn_weights=False
        )
        layer.kernel = kernel if kernel != "fused" or fused_runs else "auto"
        memory = layer.remember(key, [4, 7], value_rows=value, form=form)
        torch.testing.assert_close(layer(query, memory), wanted)
        torch.testing.assert_close(layer.weights(query, memory), maps[..., :7])


def load(layer: xa.CrossAttention, projections: dict[str, nn.Linear]) -> xa.CrossAttention:
    for name, linear in projections.items():
        layer.get_submodule(f"{name}_projection").load_state_dict(linear.state_dict())
    return layer.eval()


@pytest.mark.parametrize("form", FORMS)
def test_bart_cross_attention(form: str) -> None:
    modeling = pytest.importorskip("transformers.models.bart.modeling_bart")
    torch.manual_seed(2)
    config = modeling.BartConfig(d_model=24, decoder_attention_heads=3, encoder_attention_heads=3)
    config._attn_implementation = "eager"
    theirs = modeling.BartAttention(24, 3, is_decoder=True, config=config, layer_idx=0).eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.4)
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    layer = load(xa.CrossAttention(24, 3), {ours: getattr(theirs, x) for ours, x in names.items()})
    query, rows, mask, visible = _streams(24)
    wanted = theirs(query, key_value_states=rows, attention_mask=mask)[0]
    found = layer(query, layer.remember(rows, form=form), visible=visible)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_t5_cross_attention(form: str) -> None:
    """T5 does not scale its scores, and its heads need not fill the width."""
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    torch.manual_seed(3)
    config = modeling.T5Config(d_model=24, d_kv=5, num_heads=3, is_decoder=True, dropout_rate=0.0)
    theirs = modeling.T5Attention(config, has_relative_attention_bias=False, layer_idx=0).eval()
    names = {"query": "q", "key": "k", "value": "v", "output": "o"}
    layer = load(
        xa.CrossAttention(24, 3, key_width=5, bias=False),
        {ours: getattr(theirs, x) for ours, x in names.items()},
    )
    layer.scale = 1.0
    query, rows, mask, visible = _streams(24)
    wanted = theirs(query, mask=mask, key_value_states=rows)[0]
    found = layer(query, layer.remember(rows, form=form), visible=visible)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def _streams(width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A query, rows, and one mask both ways: 1 = real as they write it, added and as `visible`."""
    query, rows = torch.randn(2, 5, width), torch.randn(2, 7, width)
    real = torch.tensor([[1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 1, 1, 1, 0]])
    added = torch.zeros(2, 1, 1, 7).masked_fill(real[:, None, None] == 0, torch.finfo().min)
    return query, rows, added, xa.from_attention_mask(real)
