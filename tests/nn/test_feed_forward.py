"""The feed-forward part: its activation may be replaced, and leaves nothing in the state."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from crossattention import ContractError
from crossattention.nn import FeedForward, SwiGLU


@pytest.mark.parametrize(
    ("activation", "function"), [(None, F.relu), (nn.GELU(), F.gelu), (nn.Tanh(), torch.tanh)]
)
def test_value_is_the_definition(activation: nn.Module | None, function: object) -> None:
    torch.manual_seed(0)
    feed, x = FeedForward(5, 7), torch.randn(2, 3, 5)
    if activation is not None:
        feed.activation = activation
    assert callable(function)
    torch.testing.assert_close(feed(x), feed.contract(function(feed.expand(x))))


def test_the_activation_has_no_part_in_the_state() -> None:
    names = ["expand.weight", "expand.bias", "contract.weight", "contract.bias"]
    assert list(FeedForward(5, 7).state_dict()) == names


def test_swiglu_gates_the_second_half_by_the_first() -> None:
    torch.manual_seed(1)
    feed, x = FeedForward(5, 7), torch.randn(2, 3, 5)
    feed.expand, feed.activation = nn.Linear(5, 14), SwiGLU()
    gate, passed = feed.expand(x)[..., :7], feed.expand(x)[..., 7:]
    torch.testing.assert_close(feed(x), feed.contract(gate * torch.sigmoid(gate) * passed))
    with pytest.raises(ContractError, match="stream"):
        SwiGLU()(torch.zeros(2, 7))
    with pytest.raises(ContractError, match="stream"):
        SwiGLU()(torch.zeros(2, 8).long())
