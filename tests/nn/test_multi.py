"""Several memories read at once: by a sum, through gates, or in one softmax."""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.nn import MultiCrossAttention

WIDTHS, ROWS = (6, 10, 5), (7, 3, 11)


def made(combine: str, seed: int = 0) -> MultiCrossAttention:
    torch.manual_seed(seed)
    layer = MultiCrossAttention(8, 2, WIDTHS, combine=combine).double()
    for each in layer.parameters():
        torch.nn.init.normal_(each, std=0.5)
    return layer.eval()


def rows(m: int = 3) -> list[torch.Tensor]:
    return [torch.randn(m, s, c).double() for s, c in zip(ROWS, WIDTHS, strict=True)]


def heads(layer: MultiCrossAttention, i: int, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
    reader = layer.readers[i]
    split = [reader.key_projection(memory), reader.value_projection(memory)]
    return tuple(x.unflatten(-1, (2, 4)).transpose(1, 2) for x in split)


def asked(layer: MultiCrossAttention, query: torch.Tensor) -> torch.Tensor:
    return layer.query_projection(query).unflatten(-1, (2, 4)).transpose(1, 2)


LENGTHS = ([7, 2, 0], [3, 3, 0], [11, 0, 5])


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("combine", ["sum", "gate", "joint"])
def test_it_is_what_its_equation_says(combine: str, form: str) -> None:
    layer, memories, query = made(combine), rows(), torch.randn(3, 5, 8).double()
    layer.amounts = [1.0, 0.5, 2.0]
    kept = layer.remember(memories, LENGTHS, form=form)
    q = asked(layer, query)
    each = [heads(layer, i, memory) for i, memory in enumerate(memories)]
    visible = [
        (torch.arange(s) < torch.tensor(length)[:, None])[:, None, None]
        for s, length in zip(ROWS, LENGTHS, strict=True)
    ]
    if combine == "joint":
        bias = torch.cat(
            [
                torch.full((1, 1, 1, s), amount).double().log()
                for s, amount in zip(ROWS, layer.amounts, strict=True)
            ],
            -1,
        )
        whole = [torch.cat(part, 2) for part in zip(*each, strict=True)]
        value = xa.attend(q, *whole, visible=torch.cat(visible, -1), bias=bias)
    else:
        factors = [torch.full((2, 1, 1), x).double() for x in layer.amounts]
        if combine == "gate":
            for i in (1, 2):
                factors[i] = factors[i] * layer.gates[i - 1].tanh()[:, None, None]
        parts = [xa.attend(q, *x, visible=v) for x, v in zip(each, visible, strict=True)]
        value = sum(x * y for x, y in zip(parts, factors, strict=True))
    wanted = layer.output_projection(value.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(query, kept), wanted)
    shares = layer.shares(query, kept)
    torch.testing.assert_close(shares.sum(-1), torch.ones(3, 2, 5).double())
    assert not shares[1, ..., 2].any()  # a memory without rows receives nothing
    assert not shares[2, ..., :2].any()


def test_shares_are_sums_of_weights() -> None:
    layer, memories, query = made("joint"), rows(), torch.randn(3, 5, 8).double()
    each = [heads(layer, i, memory)[0] for i, memory in enumerate(memories)]
    weights = xa.attention_weights(asked(layer, query), torch.cat(each, 2))
    wanted = torch.stack([x.sum(-1) for x in weights.split(ROWS, -1)], -1)
    torch.testing.assert_close(layer.shares(query, memories), wanted)


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("combine", ["sum", "gate", "joint"])
def test_gradients_reach_everything(combine: str, form: str) -> None:
    layer, memories = made(combine), rows(2)
    query = torch.randn(2, 5, 8).double().requires_grad_()
    given = [x.requires_grad_() for x in memories]

    def read(query: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        return layer(query, layer.remember(given, ([7, 0], None, [4, 11]), form=form))

    assert torch.autograd.gradcheck(read, (query, *given), fast_mode=True)
    read(query, *given).square().sum().backward()
    silent = {name for name, each in layer.named_parameters() if each.grad is None}
    assert silent == set()
    if combine != "joint":  # with one softmax for all, key biases that differ do matter
        return
    assert all(reader.key_projection.bias.grad.abs().max() > 1e-6 for reader in layer.readers)


def test_a_closed_gate_is_the_first_memory_alone() -> None:
    layer, memories, query = made("gate"), rows(), torch.randn(3, 5, 8).double()
    torch.nn.init.zeros_(layer.gates)
    lengths = ([7, 2, 0], None, None)
    kept = layer.remember(memories, lengths)
    alone = xa.CrossAttention(8, 2, memory_width=6).double().eval()
    alone.load_state_dict(
        {name: layer.state_dict()[name] for name in alone.state_dict() if name[0] in "qo"}
        | layer.readers[0].state_dict()
    )
    assert torch.equal(layer(query, kept), alone(query, memories[0], visible=None)) is False
    assert torch.equal(layer(query, kept), alone(query, alone.remember(memories[0], lengths[0])))
    assert not layer(query, kept)[2].any()  # nothing behind a closed gate is read: no output bias
    layer(query, kept).sum().backward()
    assert layer.gates.grad.abs().min() > 0  # and yet it can open


@pytest.mark.parametrize("combine", ["sum", "gate", "joint"])
def test_a_row_that_reads_nothing_anywhere_is_zero(combine: str) -> None:
    layer, query = made(combine), torch.randn(2, 5, 8).double().requires_grad_()
    memories = [x.fill_(torch.nan) for x in rows(2)]
    output = layer(query, layer.remember(memories, ([0, 0],) * 3))
    output.sum().backward()
    assert not output.any()
    assert query.grad is not None and not query.grad.any()
    gradients = [each.grad for each in layer.parameters() if each.grad is not None]
    assert all(not each.any() for each in gradients)


@pytest.mark.parametrize("combine", ["sum", "joint"])
def test_an_amount_of_zero_leaves_a_memory_out(combine: str) -> None:
    layer, memories, query = made(combine), rows(), torch.randn(3, 5, 8).double()
    layer.amounts = [0.0, 1.0, 1.0]
    kept = layer.remember(memories, ([7, 2, 0], [3, 3, 0], [11, 0, 0]))
    other = layer.remember([memories[0] + 1, *memories[1:]], ([1, 2, 7], [3, 3, 0], [11, 0, 0]))
    torch.testing.assert_close(layer(query, kept), layer(query, other))
    assert not layer(query, other)[2].any()


def test_each_memory_has_its_own_readers() -> None:
    layer, query = made("joint"), torch.randn(6, 5, 8).double()
    memories = [x[:m] for x, m in zip(rows(), (3, 1, 2), strict=True)]
    kept = layer.remember(memories)
    owners = ([0, 0, 1, 1, 2, 2], [0] * 6, [1, 0, 1, 1, 0, 0])
    shared = []
    for memory, owner in zip(kept, owners, strict=True):
        shared.append(memory.select(torch.tensor(owner)))
    copies = [x[torch.tensor(owner)] for x, owner in zip(memories, owners, strict=True)]
    torch.testing.assert_close(layer(query, shared), layer(query, copies))


def test_masks_belong_to_their_memories() -> None:
    layer, memories, query = made("joint"), rows(), torch.randn(3, 5, 8).double()
    lengths = torch.tensor([2, 0, 3])
    visible = (torch.arange(3) < lengths[:, None])[:, None, None]
    masked = layer(query, memories, visible=[None, visible, None])
    torch.testing.assert_close(
        masked, layer(query, layer.remember(memories, [None, lengths, None]))
    )
    bias = [None, torch.zeros(3, 1, 1, 3).double().masked_fill(~visible, -torch.inf), None]
    torch.testing.assert_close(masked, layer(query, memories, bias=bias))


def test_heads_of_any_width_and_number() -> None:
    torch.manual_seed(0)
    layer = MultiCrossAttention(12, 4, WIDTHS, key_width=5, memory_heads=2).double().eval()
    query, memories = torch.randn(3, 5, 12).double(), rows()
    asked = layer.query_projection(query).unflatten(-1, (4, 5)).transpose(1, 2)
    parts = []
    for reader, memory in zip(layer.readers, memories, strict=True):
        split = reader.key_projection(memory), reader.value_projection(memory)
        parts.append([x.unflatten(-1, (2, 5)).transpose(1, 2) for x in split])
    value = xa.attend(asked, *(torch.cat(part, 2) for part in zip(*parts, strict=True)))
    wanted = layer.output_projection(value.transpose(1, 2).flatten(2))
    torch.testing.assert_close(layer(query, memories), wanted)


def test_bad_input_is_refused() -> None:
    layer, memories, query = made("joint"), rows(), torch.randn(3, 5, 8).double()
    with pytest.raises(xa.ContractError, match="`combine` must be one of 'sum', 'gate', 'joint'"):
        MultiCrossAttention(8, 2, (6,), combine="mean")
    for widths in ((), 6, None):
        with pytest.raises(xa.ContractError, match="`memory_widths` must be"):
            MultiCrossAttention(8, 2, widths)
    with pytest.raises(xa.ContractError, match="`memory_width` must be"):
        MultiCrossAttention(8, 2, (6, 0))
    for given in (memories[:2], memories[0], None):
        with pytest.raises(xa.ContractError, match="must be a list of 3|must be a float"):
            layer(query, given)
    with pytest.raises(xa.ContractError, match="`visible` must be a list of 3"):
        layer(query, memories, visible=[None])
    with pytest.raises(xa.ContractError, match="made by the layer that reads it"):
        layer(query, list(reversed(layer.remember(memories))))
    layer.amounts = [1.0, -1.0, 1.0]
    for verb in (layer, layer.shares):
        with pytest.raises(xa.ContractError, match="`amounts` must be numbers of at least 0"):
            verb(query, memories)
    layer.amounts = [1.0]
    with pytest.raises(xa.ContractError, match="`amounts` must be a list of 3"):
        layer(query, memories)
    layer.amounts, layer.readers[1] = [1.0] * 3, torch.nn.Identity()
    with pytest.raises(xa.ContractError, match="`readers` must be made of Readers"):
        layer(query, memories)
