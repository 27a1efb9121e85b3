"""The same numbers as four public ways of writing cross-attention, loaded with their weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import crossattention as xa


def test_plain_two_stream_function() -> None:
    torch.manual_seed(0)
    x, memory = torch.randn(5, 6, dtype=torch.float64), torch.randn(7, 6, dtype=torch.float64)
    w_q, w_k, w_v = (torch.randn(6, n, dtype=torch.float64) for n in (4, 4, 3))
    wanted = torch.softmax((x @ w_q) @ (memory @ w_k).T / math.sqrt(4), -1) @ (memory @ w_v)
    found = xa.attend((x @ w_q)[None], (memory @ w_k)[None], (memory @ w_v)[None])
    torch.testing.assert_close(found[0], wanted)


def test_single_head_module_without_output_projection() -> None:
    torch.manual_seed(1)
    w_q, w_k, w_v = (nn.Linear(6, 6, bias=False).double() for _ in range(3))
    layer = xa.CrossAttention(6, 1, bias=False).double()
    layer.query_projection, layer.key_projection, layer.value_projection = w_q, w_k, w_v
    layer.output_projection = nn.Identity()
    x, memory = torch.randn(2, 5, 6).double(), torch.randn(2, 7, 6).double()
    scores = w_q(x) @ w_k(memory).transpose(1, 2) / math.sqrt(6)
    torch.testing.assert_close(layer(x, memory), torch.softmax(scores, -1) @ w_v(memory))


class WideValues(nn.Module):
    """Multi-head attention with d_k ≠ d_v, where `mask == 0` hides, as many lessons write it."""

    def __init__(self, width: int, heads: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.heads, self.d_k, self.d_v = heads, d_k, d_v
        self.w_q = nn.Linear(width, heads * d_k)
        self.w_k = nn.Linear(width, heads * d_k)
        self.w_v = nn.Linear(width, heads * d_v)
        self.w_o = nn.Linear(heads * d_v, width)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        def split(x: Tensor, width: int) -> Tensor:
            return x.view(x.shape[0], x.shape[1], self.heads, width).transpose(1, 2)

        q, k, v = self.w_q(query), self.w_k(memory), self.w_v(memory)
        q, k, v = split(q, self.d_k), split(k, self.d_k), split(v, self.d_v)
        scores = (q @ k.transpose(2, 3)) / math.sqrt(self.d_k)
        weights = scores.masked_fill(mask == 0, -torch.inf).softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).flatten(2))


def test_wide_values_where_zero_hides() -> None:
    torch.manual_seed(2)
    theirs = WideValues(12, 3, d_k=4, d_v=5).double()
    layer = xa.CrossAttention(12, 3, key_width=4, value_width=5).double()
    names = ("query", "key", "value", "output")
    for name, weight in zip(names, ("w_q", "w_k", "w_v", "w_o"), strict=True):
        setattr(layer, f"{name}_projection", getattr(theirs, weight))
    x, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    mask = torch.tensor([[1, 0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    wanted = theirs(x, memory, mask[:, None, None])
    found = layer(x, memory, visible=xa.from_attention_mask(mask))
    torch.testing.assert_close(found, wanted)


OPTIONS = (
    {},
    {"kdim": 5, "vdim": 3},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
)


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_torch_multihead_attention(options: dict[str, object], form: str) -> None:
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True, **options).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    layer = xa.from_torch(theirs)
    query = torch.randn(2, 5, 12).double()
    key, value = torch.randn(2, 7, theirs.kdim).double(), torch.randn(2, 7, theirs.vdim).double()
    padding = torch.arange(7) >= torch.tensor([4, 7])[:, None]
    wanted, weights = theirs(
        query, key, value, key_padding_mask=padding, average_attn_weights=False
    )
    memory = layer.remember(key, value_rows=value, form=form)
    visible = xa.from_padding_mask(padding)
    torch.testing.assert_close(layer(query, memory, visible=visible), wanted)
    torch.testing.assert_close(layer(query, layer.remember(key, [4, 7], value_rows=value)), wanted)
    shown = layer.weights(query, memory, visible=visible)
    torch.testing.assert_close(shown, weights[..., :7])


def test_from_torch_refuses_what_it_cannot_take() -> None:
    with pytest.raises(xa.ContractError, match="nn.MultiheadAttention"):
        xa.from_torch(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(xa.ContractError, match="one extra row"):
        xa.from_torch(nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True))
