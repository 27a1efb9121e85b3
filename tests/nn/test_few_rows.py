"""Few rows through a projection: what the projection gives, however it is changed."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import crossattention as xa
from crossattention import nn as xnn
from crossattention.kernels.native.library import absent
from crossattention.kernels.native.linear import ROWS
from crossattention.nn import few_rows
from crossattention.nn.few_rows import mapped

Calls = list[Tensor]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """List the rows that were mapped natively."""
    if absent():
        pytest.skip(absent())
    found: Calls = []

    def counted(rows: Tensor, *weights: Tensor | None) -> Tensor:
        found.append(rows)
        return native(rows, *weights)

    native = few_rows.linear
    monkeypatch.setattr(few_rows, "linear", counted)
    return found


def projection(bias: bool = True) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(32, 11, bias)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("shape", "few"),
    [
        ((32,), True),
        ((7, 32), True),
        ((7, 1, 32), True),
        ((2, 3, 5, 32), True),
        ((ROWS, 32), True),
        ((ROWS + 1, 32), False),
        ((0, 1, 32), False),
    ],
)
@torch.no_grad()
def test_rows_are_those_of_the_projection(
    shape: tuple[int, ...], few: bool, bias: bool, calls: Calls
) -> None:
    layer, rows = projection(bias), torch.randn(shape)
    torch.testing.assert_close(mapped(layer, rows), layer(rows))
    assert len(calls) == few
    turned = rows.transpose(0, -1).contiguous().transpose(0, -1)  # other strides
    torch.testing.assert_close(mapped(layer, turned), layer(rows))


def write(layer: nn.Linear) -> None:
    layer.weight.mul_(-2)


def write_data(layer: nn.Linear) -> None:
    layer.weight.data.mul_(-2)


def write_bias(layer: nn.Linear) -> None:
    assert layer.bias is not None
    layer.bias.data.fill_(5)


def swap_data(layer: nn.Linear) -> None:
    layer.weight.data = torch.randn(11, 32)


def swap_strides(layer: nn.Linear) -> None:
    layer.weight.data = torch.randn(32, 11).T


def negate_lazily(layer: nn.Linear) -> None:
    layer.weight.data = torch._neg_view(layer.weight.data)


def train(layer: nn.Linear, fused: bool) -> None:
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=fused)
    with torch.enable_grad():
        mapped(layer, torch.ones(2, 32)).sum().backward()
    optimizer.step()


def load(layer: nn.Linear, assign: bool) -> None:
    layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()}, assign=assign)


def hook(layer: nn.Linear) -> None:
    layer.register_forward_hook(lambda module, given, out: out * 2)


def hook_before(layer: nn.Linear) -> None:
    layer.register_forward_pre_hook(lambda module, given: (given[0] * 2,))


def parametrise(layer: nn.Linear) -> None:
    nn.utils.parametrizations.weight_norm(layer)
    layer.parametrizations.weight.original0.mul_(3)


def cut(layer: nn.Linear) -> None:
    prune.l1_unstructured(layer, "weight", 0.5)


def override(layer: nn.Linear) -> None:
    plain = layer.forward
    layer.forward = lambda rows: plain(rows) * 2  # type: ignore[method-assign]


CHANGES: dict[str, Callable[[nn.Linear], object]] = {
    "written": write,
    "written through data": write_data,
    "bias written through data": write_bias,
    "data swapped": swap_data,
    "strides swapped": swap_strides,
    "negated lazily": negate_lazily,
    "trained": lambda layer: train(layer, fused=False),
    "trained by a fused optimiser": lambda layer: train(layer, fused=True),
    "loaded": lambda layer: load(layer, assign=False),
    "assigned": lambda layer: load(layer, assign=True),
    "hooked": hook,
    "hooked before": hook_before,
    "parametrised": parametrise,
    "pruned": cut,
    "overridden": override,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@torch.no_grad()
def test_every_change_of_the_weights_is_seen(
    change: Callable[[nn.Linear], object], calls: Calls
) -> None:
    layer, rows = projection(), torch.randn(3, 1, 32)
    before = mapped(layer, rows)
    assert calls
    change(layer)
    found = mapped(layer, rows)
    torch.testing.assert_close(found, layer(rows))
    assert not torch.allclose(found, before)
    again = mapped(layer, rows)
    assert torch.equal(again, found)


class Louder(nn.Linear):
    """A wrapper's kind: a linear map that does more."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) * 2


@torch.no_grad()
def test_what_is_more_than_a_linear_map_is_called(calls: Calls) -> None:
    rows = torch.randn(3, 1, 32)
    for layer in (Louder(32, 11), nn.Sequential(projection()), nn.Identity()):
        torch.testing.assert_close(mapped(layer, rows), layer(rows))
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, out: out * 2)
    try:
        torch.testing.assert_close(mapped(projection(), rows), projection()(rows))
    finally:
        handle.remove()
    assert not calls


def test_where_torch_records_or_rounds_it_does_so(calls: Calls) -> None:
    layer, rows = projection(), torch.randn(3, 32)
    (gradient,) = torch.autograd.grad(mapped(layer, rows).sum(), [layer.weight])
    torch.testing.assert_close(gradient, rows.sum(0).expand(11, 32))
    with torch.no_grad():
        each = torch.func.vmap(lambda row: mapped(layer, row))(rows)
        torch.testing.assert_close(each, layer(rows))
        _, tangent = torch.func.jvp(lambda x: mapped(layer, x), (rows,), (rows,))
        torch.testing.assert_close(tangent, rows @ layer.weight.T)
        with torch.autocast("cpu"):
            assert mapped(layer, rows).dtype == torch.bfloat16
        assert mapped(copy.deepcopy(layer).double(), rows.double()).dtype == torch.float64
        assert not calls
        traced = torch.jit.trace(Mapping(layer), rows, check_trace=False)
        torch.testing.assert_close(traced(rows + 1), layer(rows + 1))
        weights = {"layer.weight": torch.ones(11, 32), "layer.bias": torch.zeros(11)}
        called = torch.func.functional_call(Mapping(layer), weights, (rows,))
    torch.testing.assert_close(called, rows.sum(1, keepdim=True).expand(3, 11))
    assert len(calls) == 1  # of the functional call


class Mapping(nn.Module):
    """Map rows by a layer of its own."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, rows: Tensor) -> Tensor:
        return mapped(self.layer, rows)


@torch.no_grad()
def test_rows_of_another_width_are_refused_as_torch_refuses_them(calls: Calls) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        mapped(projection(), torch.randn(3, 5))
    assert not calls


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_step_of_a_decoder_reads_all_its_weights_so(norm: str, calls: Calls) -> None:
    torch.manual_seed(1)
    block = xnn.DecoderBlock(48, 3, 80, norm=norm).eval()
    stream, rows = torch.randn(5, 4, 48), torch.randn(5, 7, 48)
    wanted = block(stream, rows)
    with torch.inference_mode():
        memory = block.cross_attention.remember(xa.Memory.of(rows), form="projected")
        cache = block.self_attention.start(5, 4)
        for step in range(4):
            row, cache = block.step_self(stream[:, step : step + 1], cache)
            found = block.read_memory(row, memory)
            torch.testing.assert_close(found, wanted[:, step : step + 1], atol=1e-5, rtol=1e-5)
            assert len(calls) == 6 * (step + 1)
