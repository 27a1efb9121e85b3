"""The pooling head: equal to transformers' own, and right where theirs has no say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipMultiheadAttentionPoolingHead

from crossattention.nn import PoolingHead, siglip_pooling

WIDTH, HEADS, HIDDEN = 12, 3, 20


def theirs() -> SiglipMultiheadAttentionPoolingHead:
    torch.manual_seed(0)
    config = SiglipVisionConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=HIDDEN
    )
    head = SiglipMultiheadAttentionPoolingHead(config).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return head


def renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give their weights, or their gradients, our names."""
    ours = {"pool.queries.weight": state["probe"][0]}
    for kind in ("weight", "bias"):
        thirds = state[f"attention.in_proj_{kind}"].chunk(3)
        for name, third in zip(("query", "key", "value"), thirds, strict=True):
            ours[f"pool.attention.{name}_projection.{kind}"] = third
        for name, other in (
            ("pool.attention.output_projection", "attention.out_proj"),
            ("norm", "layernorm"),
            ("feed_forward.expand", "mlp.fc1"),
            ("feed_forward.contract", "mlp.fc2"),
        ):
            ours[f"{name}.{kind}"] = state[f"{other}.{kind}"]
    return ours


def twins() -> tuple[PoolingHead, SiglipMultiheadAttentionPoolingHead]:
    head, other = siglip_pooling(WIDTH, HEADS, HIDDEN).eval(), theirs()
    head.load_state_dict(renamed(other.state_dict()))
    return head, other


@pytest.mark.parametrize("form", ["auto", "raw", "projected"])
def test_outputs_and_gradients_equal_transformers(form: str) -> None:
    head, other = twins()
    head.pool.form = form
    rows = torch.randn(5, 7, WIDTH)
    ours, wanted = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    found, given = head(ours)[:, 0], other(wanted)
    torch.testing.assert_close(found, given, atol=1e-5, rtol=1e-5)
    found.sin().sum().backward()
    given.sin().sum().backward()
    torch.testing.assert_close(ours.grad, wanted.grad, atol=1e-5, rtol=1e-5)
    gradients = renamed({name: each.grad for name, each in other.named_parameters()})
    assert gradients.keys() == {name for name, _ in head.named_parameters()}
    for name, parameter in head.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(head(rows)[:, 0], other(rows), atol=1e-5, rtol=1e-5)


def test_the_preset_has_the_published_sizes() -> None:
    with torch.device("meta"):
        head = siglip_pooling()
        other = SiglipMultiheadAttentionPoolingHead(SiglipVisionConfig())
    sizes = {name: each.shape for name, each in head.state_dict().items()}
    assert sizes == {name: each.shape for name, each in renamed(other.state_dict()).items()}
    assert head.pool.attention.sizes.heads == other.attention.num_heads
    assert head.norm.eps == other.layernorm.eps


def test_padding_is_not_read() -> None:
    head, other = twins()
    rows = torch.randn(2, 7, WIDTH)
    wanted = torch.cat([other(rows[:1]), other(rows[1:, :4])])
    rows[1, 4:] = torch.nan
    torch.testing.assert_close(head(rows, [7, 4])[:, 0], wanted, atol=1e-5, rtol=1e-5)
    seen = torch.arange(7) < torch.tensor([7, 4])[:, None]
    rows[1, 4:] = 3.0
    found = head(rows, visible=seen[:, None, None])[:, 0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_without_rows_the_head_thinks_of_nothing() -> None:
    head = PoolingHead(WIDTH, HEADS, HIDDEN, queries=2)
    torch.nn.init.normal_(head.feed_forward.contract.bias)
    rows = torch.full((2, 5, WIDTH), torch.nan)
    found = head(rows, [0, 0])
    wanted = head.feed_forward(head.norm(torch.zeros(2, 2, WIDTH)))
    assert torch.equal(found, wanted)
