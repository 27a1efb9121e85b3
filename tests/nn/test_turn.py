"""A layer with rotary positions: both streams are turned, or neither."""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.nn import Rotary


def layer() -> xa.CrossAttention:
    torch.manual_seed(0)
    made = xa.CrossAttention(12, 2, memory_width=5).double().eval()
    made.rotary = Rotary(4)
    return made


def given() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 5, 12).double(), torch.randn(3, 7, 5).double()


def test_scores_depend_on_differences_of_positions_alone() -> None:
    made, (query, rows) = layer(), given()
    at, asked = torch.arange(7) * 2, torch.arange(5) + 3
    first = made(query, made.remember(rows, positions=at), positions=asked)
    moved = made(query, made.remember(rows, positions=at + 11), positions=asked + 11)
    torch.testing.assert_close(first, moved)
    other = made(query, made.remember(rows, positions=at + 11), positions=asked)
    assert (first - other).abs().max() > 1e-3


def test_it_is_what_turned_heads_read() -> None:
    made, (query, rows) = layer(), given()
    at, asked = torch.rand(3, 7) * 9, torch.rand(1, 5) * 9
    q, key, value = (
        each(x).unflatten(-1, (2, 6)).transpose(1, 2)
        for each, x in (
            (made.query_projection, query),
            (made.key_projection, rows),
            (made.value_projection, rows),
        )
    )
    value = xa.attend(made.rotary(q, asked), made.rotary(key, at), value, lengths=[7, 0, 2])
    wanted = made.output_projection(value.transpose(1, 2).flatten(2))
    wanted[1] = 0
    memory = made.remember(rows, [7, 0, 2], positions=at)
    torch.testing.assert_close(made(query, memory, positions=asked), wanted)
    shown = made.weights(query, memory, positions=asked)
    torch.testing.assert_close(
        shown, xa.attention_weights(made.rotary(q, asked), made.rotary(key, at), lengths=[7, 0, 2])
    )


def test_one_sided_rotation_is_refused() -> None:
    made, (query, rows) = layer(), given()
    at, asked = torch.arange(7), torch.arange(5)
    memory = made.remember(rows, positions=at)
    with pytest.raises(xa.ContractError, match="`positions` must be those of the query"):
        made(query, memory)
    with pytest.raises(xa.ContractError, match="`positions` must be those of the memory"):
        made.remember(rows)
    with pytest.raises(xa.ContractError, match="`positions` must be those of the memory"):
        made(query, rows, positions=asked)
    with pytest.raises(xa.ContractError, match="rotary keys are turned after"):
        made.remember(rows, positions=at, form="raw")
    made.rotary = None
    with pytest.raises(xa.ContractError, match="`positions` must be None, as the layer has no"):
        made(query, memory, positions=asked)
    with pytest.raises(xa.ContractError, match="`memory` must be fresh, got a stale one"):
        made(query, memory)
    with pytest.raises(xa.ContractError, match="`positions` must be None, as the layer has no"):
        made.remember(rows, positions=at)
    made.rotary = torch.nn.Identity()
    with pytest.raises(xa.ContractError, match="`rotary` must be a Rotary"):
        made.remember(rows, positions=at)


def test_another_rotary_makes_a_memory_stale() -> None:
    made, (query, rows) = layer(), given()
    memory = made.remember(rows, positions=torch.arange(7))
    made.rotary = Rotary(4, base=100.0)
    with pytest.raises(xa.ContractError, match="stale"):
        made(query, memory, positions=torch.arange(5))
