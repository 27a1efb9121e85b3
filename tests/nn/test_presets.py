"""Each preset equals the Hugging Face module that it names, on random weights and norms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossattention.nn import (
    CrossAttention,
    FeedForward,
    PerceiverDecoder,
    SelfAttention,
    fold_norm,
    perceiver_latents,
    q_former,
)

FORMS = ["raw", "projected"]


def randomised(module: nn.Module) -> nn.Module:
    """Random weights, norms and biases, in float64 and in evaluation mode."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.4)
    return module.double().eval()


def padded(count: int, width: int) -> tuple[Tensor, list[int], Tensor]:
    """Rows, their lengths, and the mask that says the same to Hugging Face."""
    lengths = [count, count - 3, 1]
    mask = torch.arange(count) < torch.tensor(lengths)[:, None]
    return torch.randn(3, count, width, dtype=torch.float64), lengths, mask.long()


def test_perceiver_defaults_are_theirs() -> None:
    configuration = pytest.importorskip("transformers.models.perceiver.configuration_perceiver")
    with torch.device("meta"):
        perceiver = perceiver_latents()
    theirs = configuration.PerceiverConfig()
    assert tuple(perceiver.queries.weight.shape) == (theirs.num_latents, theirs.d_latents)
    assert perceiver.memory_width == theirs.d_model
    assert len(perceiver.latent[0]) == theirs.num_self_attends_per_block
    sizes = perceiver.reading[0].cross_attention.sizes
    assert (sizes.heads, sizes.heads * sizes.key_width) == (8, theirs.d_model)
    assert perceiver.reading[0].feed_forward.expand.out_features == theirs.d_latents
    assert perceiver.repeats == theirs.num_blocks


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("keys_as", ["kv", "q"])
def test_perceiver_latents_equal_perceiver_model(keys_as: str, form: str) -> None:
    modeling = pytest.importorskip("transformers.models.perceiver.modeling_perceiver")
    torch.manual_seed(0)
    config = modeling.PerceiverConfig(
        num_latents=5, d_latents=8, d_model=6, num_blocks=2, num_self_attends_per_block=3,
        num_self_attention_heads=4, num_cross_attention_heads=2,
        cross_attention_shape_for_attention=keys_as,
    )  # fmt: skip
    theirs = randomised(modeling.PerceiverModel(config))
    ours = perceiver_latents(
        8, (2, 4), memory_width=6, queries=5, latent_layers=3, repeats=2,
        key_width=4 if keys_as == "q" else None,
    ).double()  # fmt: skip
    ours.form = form
    encoder = theirs.encoder
    ours.queries.weight = theirs.embeddings.latents
    copy_reading(ours.reading[0].cross_attention, encoder.cross_attention.attention)
    pairs = [(ours.reading[0], ours.reading[0].around_cross, encoder.cross_attention)]
    for block, layer in zip(ours.latent[0], encoder.self_attends, strict=True):
        copy_self(block.self_attention, layer.attention.self, layer.attention.output)
        pairs.append((block, block.around_self, layer))
    for block, around, layer in pairs:
        around.norm.load_state_dict(layer.attention.self.layernorm1.state_dict())
        block.around_feed.norm.load_state_dict(layer.layernorm.state_dict())
        copy_feed(block.feed_forward, layer.mlp.dense1, layer.mlp.dense2)
    rows, lengths, mask = padded(7, 6)
    wanted = theirs(rows, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(ours(rows, lengths), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("adds_queries", [False, True])
def test_perceiver_decoder_equals_basic_decoder(adds_queries: bool) -> None:
    modeling = pytest.importorskip("transformers.models.perceiver.modeling_perceiver")
    torch.manual_seed(1)
    config = modeling.PerceiverConfig(d_latents=8)
    theirs = randomised(
        modeling.PerceiverBasicDecoder(
            config, output_num_channels=6, position_encoding_type="none", num_channels=6,
            num_heads=2, final_project=False, use_query_residual=adds_queries,
        )
    )  # fmt: skip
    ours = PerceiverDecoder(6, 2, memory_width=8, adds_queries=adds_queries).double()
    layer = theirs.decoding_cross_attention
    ours.cross_attention = CrossAttention(6, 2, memory_width=8, key_width=4).double()
    copy_reading(ours.cross_attention, layer.attention)
    ours.query_norm.load_state_dict(layer.attention.self.layernorm1.state_dict())
    ours.around_feed.norm.load_state_dict(layer.layernorm.state_dict())
    copy_feed(ours.feed_forward, layer.mlp.dense1, layer.mlp.dense2)
    queries, latents = torch.randn(2, 7, 6).double(), torch.randn(2, 5, 8).double()
    wanted = theirs(queries, latents).logits
    torch.testing.assert_close(ours(queries, latents), wanted, rtol=0, atol=1e-10)


def test_q_former_has_as_many_parameters_as_theirs() -> None:
    modeling = pytest.importorskip("transformers.models.blip_2.modeling_blip_2")
    with torch.device("meta"):
        theirs = modeling.Blip2QFormerModel(modeling.Blip2QFormerConfig())
        ours = q_former()
    wanted = sum(each.numel() for each in theirs.parameters()) + 32 * 768  # the query tokens
    assert sum(each.numel() for each in ours.parameters()) == wanted


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("every", [1, 2])
def test_q_former_equals_blip2(every: int, form: str) -> None:
    modeling = pytest.importorskip("transformers.models.blip_2.modeling_blip_2")
    torch.manual_seed(2)
    config = modeling.Blip2QFormerConfig(
        hidden_size=12, num_hidden_layers=3, num_attention_heads=3, intermediate_size=7,
        encoder_hidden_size=5, cross_attention_frequency=every,
    )  # fmt: skip
    theirs = randomised(modeling.Blip2QFormerModel(config))
    tokens = torch.randn(4, 12).double()
    ours = q_former(12, 3, memory_width=5, queries=4, depth=3, every=every, feed_forward=7)
    ours.double().eval().form = form
    ours.queries.weight = nn.Parameter(tokens)
    ours.query_norm.load_state_dict(theirs.layernorm.state_dict())
    for layer, their in zip(ours.layers, theirs.encoder.layer, strict=True):
        copy_self(layer.self_attention, their.attention.attention, their.attention.output)
        layer.around_self.norm.load_state_dict(their.attention.output.LayerNorm.state_dict())
        copy_feed(layer.feed_forward, their.intermediate_query.dense, their.output_query.dense)
        layer.around_feed.norm.load_state_dict(their.output_query.LayerNorm.state_dict())
        if layer.cross_attention is not None:
            inner, output = their.crossattention.attention, their.crossattention.output
            for name in ("query", "key", "value"):
                setattr(layer.cross_attention, f"{name}_projection", getattr(inner, name))
            layer.cross_attention.output_projection = output.dense
            layer.around_cross.norm.load_state_dict(output.LayerNorm.state_dict())
    rows, lengths, mask = padded(7, 5)
    wanted = theirs(
        tokens.expand(3, -1, -1), encoder_hidden_states=rows, encoder_attention_mask=mask
    ).last_hidden_state
    torch.testing.assert_close(ours(rows, lengths), wanted, rtol=0, atol=1e-10)


def copy_reading(ours: CrossAttention, theirs: Any) -> None:
    """Take over a Perceiver's reading; the norm of its rows is folded into keys and values."""
    inner = theirs.self
    ours.query_projection = inner.query
    ours.key_projection = fold_norm(inner.layernorm2, inner.key)
    ours.value_projection = fold_norm(inner.layernorm2, inner.value)
    ours.output_projection = theirs.output.dense


def copy_self(ours: SelfAttention, inner: Any, output: Any) -> None:
    """Take over queries, keys and values of a self-attention, one below the other."""
    maps = (inner.query, inner.key, inner.value)
    ours.projection.weight = nn.Parameter(torch.cat([each.weight for each in maps]))
    ours.projection.bias = nn.Parameter(torch.cat([each.bias for each in maps]))
    ours.output_projection = output.dense


def copy_feed(ours: FeedForward, expand: nn.Linear, contract: nn.Linear) -> None:
    """Take over the two maps of a feed-forward."""
    ours.expand, ours.contract = expand, contract
