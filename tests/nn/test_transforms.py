"""Layers under torch's function transforms, and memories that were made in another mode."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import crossattention as xa


def made() -> tuple[xa.CrossAttention, Tensor, Tensor]:
    torch.manual_seed(0)
    return xa.CrossAttention(8, 2, memory_width=6), torch.randn(2, 3, 8), torch.randn(2, 5, 6)


def test_gradients_of_a_function_of_the_parameters() -> None:
    layer, query, rows = made()
    parameters = {name: each.detach() * 1.1 for name, each in layer.named_parameters()}
    found = grad(lambda p: functional_call(layer, p, (query, rows)).sin().sum())(parameters)
    leaves = {name: each.requires_grad_() for name, each in parameters.items()}
    output = functional_call(layer, leaves, (query, rows))
    wanted = torch.autograd.grad(output.sin().sum(), list(leaves.values()))
    for ours, theirs in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_other_parameters_do_not_read_what_the_layer_remembered(form: str) -> None:
    layer, query, rows = made()
    memory = layer.remember(rows, form=form)
    others = {name: each.detach() * 1.1 for name, each in layer.named_parameters()}
    with pytest.raises(xa.ContractError, match="stale"):
        functional_call(layer, others, (query, memory))
    assert functional_call(layer, dict(layer.named_parameters()), (query, memory)).shape == (
        2,
        3,
        8,
    )


@pytest.mark.parametrize("kernel", ["reference", "matmul"])
def test_a_mask_for_each_of_many(kernel: str) -> None:
    _, query, _ = made()
    visible = torch.rand(4, 3, 3) > 0.4
    visible[1, :, 0] = False

    def read(seen: Tensor) -> Tensor:
        return xa.attend(query, query, query, visible=seen, kernel=kernel)

    wanted = torch.stack([read(seen) for seen in visible])
    torch.testing.assert_close(vmap(read)(visible), wanted)


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_a_memory_made_in_inference_mode_is_not_trained_through(form: str) -> None:
    layer, query, rows = made()
    with torch.inference_mode():
        memory = layer.remember(rows.clone(), form=form)
        wanted = layer(query, memory)
    with torch.no_grad():
        torch.testing.assert_close(layer(query, memory), wanted.clone())
    with pytest.raises(xa.ContractError, match=r"`memory` must be .*, got one made in inference"):
        layer(query, memory)


def test_a_memory_made_without_gradients_trains_the_query_side() -> None:
    layer, query, rows = made()
    with torch.no_grad():
        memory = layer.remember(rows)
    layer(query, memory).sum().backward()
    assert layer.query_projection.weight.grad is not None
    assert layer.key_projection.weight.grad is None


def test_a_low_rank_adapter_is_seen() -> None:
    class Adapter(nn.Module):
        def __init__(self, base: nn.Module) -> None:
            super().__init__()
            self.base, self.on, self.scaling = base, True, {"default": 1.0}
            self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 8, bias=False)

        def forward(self, rows: Tensor) -> Tensor:
            added = self.up(self.down(rows)) * self.scaling["default"] if self.on else 0
            output: Tensor = self.base(rows) + added
            return output

    def merge(adapter: Adapter) -> None:
        with torch.no_grad():
            adapter.base.weight.add_(adapter.up.weight @ adapter.down.weight)

    changes = (
        lambda adapter: setattr(adapter, "on", False),
        lambda adapter: adapter.scaling.update(default=3.0),
        merge,
    )
    for change in changes:
        layer, query, rows = made()
        layer.key_projection = Adapter(layer.key_projection)
        with pytest.raises(xa.ContractError, match="not nn.Linear"):
            layer.remember(rows, form="raw")
        memory = layer.remember(rows)
        layer(query, memory)
        change(layer.key_projection)
        with pytest.raises(xa.ContractError, match="stale"):
            layer(query, memory)
