"""Each resampler preset equals the Hugging Face module that it names, on random weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossattention.nn import (
    JointBlock,
    Resampler,
    flamingo_resampler,
    fold_norm,
    idefics2_resampler,
)


def randomised(module: nn.Module) -> nn.Module:
    """Random weights, norms and biases, in float64 and in evaluation mode."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.4)
    return module.double().eval()


def joined(resampler: Resampler) -> list[JointBlock]:
    """The resampler's blocks."""
    assert all(isinstance(each, JointBlock) for each in resampler.blocks)
    return list(resampler.blocks)


def copy_attention(block: JointBlock, theirs: Any, row_norm: Any, stream_norm: Any) -> None:
    """Take over an attention with tied projections; the norm of the rows is folded into two."""
    ours = block.cross_attention
    ours.query_projection = theirs.q_proj
    of_rows, of_queries = ours.readers
    of_rows.key_projection = fold_norm(row_norm, theirs.k_proj)
    of_rows.value_projection = fold_norm(row_norm, theirs.v_proj)
    of_queries.key_projection, of_queries.value_projection = theirs.k_proj, theirs.v_proj
    block.around_cross.norm.load_state_dict(stream_norm.state_dict())


def make_flamingo(norms_heads: bool) -> tuple[Resampler, nn.Module]:
    perceiver = pytest.importorskip("transformers.models.idefics.perceiver")
    torch.manual_seed(0)
    config = perceiver.IdeficsConfig(
        vision_config={"embed_dim": 8},
        perceiver_config={"qk_layer_norms_perceiver": norms_heads},
    )
    theirs = randomised(perceiver.IdeficsPerceiverResampler(config, 8, 3, 4, 5, 6))
    ours = flamingo_resampler(
        8, 4, queries=6, depth=3, key_width=5, norms_heads=norms_heads
    ).double()  # fmt: skip
    ours.queries.weight = theirs.latents
    ours.output_norm.load_state_dict(theirs.layer_norm.state_dict())
    for block, (attention, feed) in zip(joined(ours), theirs.blocks, strict=True):
        row_norm, stream_norm = attention.context_layer_norm, attention.latents_layer_norm
        copy_attention(block, attention, row_norm, stream_norm)
        block.cross_attention.output_projection = attention.output_proj
        if norms_heads:
            block.cross_attention.query_norm.load_state_dict(attention.q_layer_norm.state_dict())
            for reader in block.cross_attention.readers:
                reader.key_norm.load_state_dict(attention.k_layer_norm.state_dict())
        block.around_feed.norm.load_state_dict(feed.ln.state_dict())
        block.feed_forward.expand, block.feed_forward.contract = feed.fc, feed.c_proj
    return ours, theirs


@pytest.mark.parametrize(
    ("norms_heads", "form"), [(False, "raw"), (False, "projected"), (True, "projected")]
)
def test_flamingo_resampler_equals_idefics(norms_heads: bool, form: str) -> None:
    ours, theirs = make_flamingo(norms_heads)
    ours.form = form
    rows = torch.randn(3, 7, 8).double()
    torch.testing.assert_close(ours(rows), theirs(rows), rtol=0, atol=1e-10)
    # They take no mask: a padded input equals theirs one by one.
    for one, length, found in zip(rows, [7, 4, 1], ours(rows, [7, 4, 1]), strict=True):
        wanted = theirs(one[None, :length])[0]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


def test_flamingo_resampler_learns_as_theirs_does() -> None:
    ours, theirs = make_flamingo(norms_heads=False)
    rows = [torch.randn(3, 7, 8).double().requires_grad_()]
    rows.append(rows[0].detach().clone().requires_grad_())
    for module, given in zip((ours, theirs), rows, strict=True):
        module(given).square().sum().backward()
    torch.testing.assert_close(rows[0].grad, rows[1].grad)


def make_idefics2() -> tuple[Resampler, nn.Module]:
    modeling = pytest.importorskip("transformers.models.idefics2.modeling_idefics2")
    torch.manual_seed(1)
    config = modeling.Idefics2PerceiverConfig(
        hidden_size=8, resampler_n_latents=6, resampler_depth=2, resampler_n_heads=4,
        resampler_head_dim=5, num_key_value_heads=2,
    )  # fmt: skip
    theirs = randomised(modeling.Idefics2PerceiverResampler(config))
    ours = idefics2_resampler(
        8, 4, queries=6, depth=2, key_width=5, memory_heads=2
    ).double()  # fmt: skip
    ours.queries.weight = theirs.latents
    ours.output_norm.load_state_dict(theirs.norm.state_dict())
    for block, layer in zip(joined(ours), theirs.layers, strict=True):
        row_norm = nn.RMSNorm(8)  # torch's own, which `fold_norm` knows
        row_norm.weight = layer.input_context_norm.weight
        copy_attention(block, layer.self_attn, row_norm, layer.input_latents_norm)
        block.cross_attention.output_projection = layer.self_attn.o_proj
        block.around_feed.norm.load_state_dict(layer.post_attention_layernorm.state_dict())
        gates = torch.cat([layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight])
        block.feed_forward.expand.weight = nn.Parameter(gates)
        block.feed_forward.contract = layer.mlp.down_proj
    return ours, theirs


@pytest.mark.parametrize("form", ["raw", "projected"])
def test_idefics2_resampler_equals_theirs(form: str) -> None:
    ours, theirs = make_idefics2()
    ours.form = form
    lengths = [7, 4, 1]
    rows = torch.randn(3, 7, 8).double()
    mask: Tensor = (torch.arange(7) < torch.tensor(lengths)[:, None]).long()
    # Their norms compute in float32 whatever the weights are.
    torch.testing.assert_close(ours(rows, lengths), theirs(rows, mask), rtol=0, atol=1e-5)


def test_defaults_are_the_published_sizes() -> None:
    with torch.device("meta"):
        flamingo, idefics2 = flamingo_resampler(), idefics2_resampler()
    assert flamingo(torch.ones(1, 257, 1280, device="meta")).shape == (1, 64, 1280)
    assert idefics2(torch.ones(1, 70, 4096, device="meta")).shape == (1, 64, 4096)
    assert [len(flamingo.blocks), len(idefics2.blocks)] == [6, 3]
    sizes = [each.blocks[0].cross_attention.sizes for each in (flamingo, idefics2)]
    assert [(x.heads, x.memory_heads, x.key_width) for x in sizes] == [(16, 16, 96), (16, 4, 96)]
