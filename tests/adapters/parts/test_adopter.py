"""Whatever known modules a model contains are adopted together, or none of them is."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    Blip2QFormerConfig,
    Blip2QFormerModel,
    PerceiverConfig,
    PerceiverModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)
from transformers.models.idefics2.configuration_idefics2 import Idefics2PerceiverConfig
from transformers.models.idefics2.modeling_idefics2 import Idefics2PerceiverResampler

from adapters.parts.latent import AttentionPoolLatent
from crossattention.adapters.adopt import adopt, adopted, explain_model, is_adopted, release
from crossattention.adapters.parts.adopter import PARTS, parts_of
from crossattention.adapters.parts.replaced import is_replaced
from crossattention.errors import ContractError

B, S, T, C = 2, 11, 3, 8
Case = tuple[nn.Module, Callable[[nn.Module], Tensor]]


def torch_model() -> Case:
    rows, target = torch.randn(B, S, C), torch.randn(B, T, C)
    model = nn.Transformer(C, 2, 1, 2, 16, batch_first=True)
    return model, lambda each: each(rows, target)


def siglip() -> Case:
    config = SiglipVisionConfig(
        hidden_size=C, num_attention_heads=2, intermediate_size=9, num_hidden_layers=1,
        image_size=6, patch_size=2,
    )  # fmt: skip
    pixels = torch.randn(B, 3, 6, 6)
    return SiglipVisionModel(config), lambda each: each(pixels).pooler_output


def timm_like() -> Case:
    rows = torch.randn(B, S, C)
    return nn.Sequential(nn.Linear(C, C), AttentionPoolLatent(C, 2)), lambda each: each(rows)


def blip2() -> Case:
    config = Blip2QFormerConfig(
        hidden_size=C, num_attention_heads=2, intermediate_size=9, num_hidden_layers=2,
        encoder_hidden_size=10, vocab_size=5,
    )  # fmt: skip
    queries, image = torch.randn(B, T, C), torch.randn(B, S, 10)
    return Blip2QFormerModel(
        config
    ), lambda each: each(query_embeds=queries, encoder_hidden_states=image).last_hidden_state


def idefics2() -> Case:
    config = Idefics2PerceiverConfig(
        hidden_size=C, resampler_n_latents=T, resampler_depth=1, resampler_n_heads=4,
        resampler_head_dim=4, num_key_value_heads=2,
    )  # fmt: skip
    rows, mask = torch.randn(B, S, C), torch.ones(B, S, dtype=torch.long)
    return Idefics2PerceiverResampler(config), lambda each: each(rows, mask)


def perceiver() -> Case:
    config = PerceiverConfig(
        num_latents=T, d_latents=C, d_model=5, num_blocks=1, num_self_attends_per_block=1,
        num_self_attention_heads=2, num_cross_attention_heads=1,
    )  # fmt: skip
    rows = torch.randn(B, S, 5)
    return PerceiverModel(config), lambda each: each(inputs=rows).last_hidden_state


CASES = [torch_model, siglip, timm_like, blip2, idefics2, perceiver]


@pytest.mark.parametrize("case", CASES)
def test_whole_models(case: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    model, call = case()
    model.eval()
    names, keys = [set(vars(each)) for each in model.modules()], list(model.state_dict())
    with torch.no_grad():
        want = call(model)
        assert adopt(model) is model
        torch.testing.assert_close(call(model), want, rtol=1e-4, atol=1e-5)
        assert list(model.state_dict()) == keys
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(call(other), want, rtol=1e-4, atol=1e-5)
            assert torch.equal(call(release(other)), want)
        assert torch.equal(call(release(model)), want)
        with adopted(model):
            assert is_adopted(model)
    assert [set(vars(each)) for each in model.modules()] == names


def test_a_head_s_attention_is_its_own_affair() -> None:
    model = adopt(siglip()[0])
    inside = [
        module
        for module in model.modules()
        if isinstance(module, nn.MultiheadAttention) and is_replaced(module)
    ]
    assert inside == []


def test_a_decoder_s_attention_is_adopted_with_it() -> None:
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(C, 2), 2)
    kinds = [part.kind for _, part in parts_of(model)]
    assert kinds.count("torch.nn.MultiheadAttention") == 4
    assert kinds.count("torch.nn.TransformerDecoder") == 3  # itself and two layers


def test_a_module_in_two_places_is_adopted_once() -> None:
    shared = nn.MultiheadAttention(C, 2)
    model = nn.ModuleDict({"a": shared, "b": shared})
    adopt(model)
    release(model)
    assert not is_replaced(shared)


def test_all_or_none() -> None:
    """One module refuses: nothing has been changed, though others stood before it."""
    model = nn.ModuleList([nn.MultiheadAttention(C, 2), nn.MultiheadAttention(C, 2)])
    model[1].forward = lambda *given: given  # type: ignore[method-assign]
    with pytest.raises(ContractError, match="wrapped"):
        adopt(model)
    assert "forward" not in vars(model[0])
    assert not is_adopted(model)


def test_what_is_adopted_already_says_so() -> None:
    model = nn.Sequential(nn.MultiheadAttention(C, 2))
    adopt(model[0])
    with pytest.raises(ContractError, match="release it first"):
        adopt(model)


def test_a_model_of_nothing_known_says_what_is() -> None:
    with pytest.raises(ContractError) as refused:
        adopt(nn.Sequential(nn.Linear(2, 2)))
    assert all(part.kind in str(refused.value) for part in PARTS)


def test_there_is_nothing_to_bill() -> None:
    with pytest.raises(ContractError, match="generate"):
        explain_model(nn.MultiheadAttention(C, 2))
