"""Sinks: a learned score that takes weight and gives nothing."""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from crossattention.nn import NullRow, Sink

FORMS = ("projected", "raw")
KERNELS = ("reference", "matmul", "fused")


def layer(heads: int = 4) -> xa.CrossAttention:
    torch.manual_seed(0)
    made = xa.CrossAttention(12, heads, memory_heads=2, memory_width=5).double().eval()
    made.null_row = Sink(heads).double()
    for each in made.parameters():
        torch.nn.init.normal_(each, std=0.5)
    return made


@torch.no_grad()
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_one_more_column_of_the_softmax(form: str, kernel: str) -> None:
    made, query, rows = layer(), torch.randn(3, 5, 12).double(), torch.randn(3, 7, 5).double()
    made.kernel = kernel
    memory = made.remember(rows, [7, 2, 0], form=form)
    q = made.query_projection(query).unflatten(-1, (4, 3)).transpose(1, 2)
    key, value = (
        each(rows).unflatten(-1, (2, 3)).transpose(1, 2).repeat_interleave(2, 1)
        for each in (made.key_projection, made.value_projection)
    )
    scores = q @ key.transpose(-1, -2) * 3**-0.5
    hidden = torch.arange(7) >= torch.tensor([7, 2, 0])[:, None, None, None]
    scores = scores.masked_fill(hidden, -torch.inf)
    sink = made.null_row.logit[:, None, None].expand(3, 4, 5, 1)
    weights = torch.softmax(torch.cat((scores, sink), -1), -1)[..., :-1]
    wanted = made.output_projection((weights @ value).transpose(1, 2).flatten(2))
    wanted[2] = 0  # nothing but the sink: a row that read nothing, without the output bias
    torch.testing.assert_close(made(query, memory), wanted)
    torch.testing.assert_close(made.weights(query, memory), weights)
    torch.testing.assert_close(made.weights(query, memory, heads=[3, 0]), weights[:, [3, 0]])


@pytest.mark.parametrize("form", FORMS)
def test_gradients(form: str) -> None:
    made, query, rows = layer(), torch.randn(2, 3, 12).double(), torch.randn(2, 5, 5).double()

    def read(query: torch.Tensor, rows: torch.Tensor, logit: torch.Tensor) -> torch.Tensor:
        given = {"null_row.logit": logit}
        memory = made.remember(rows, [5, 0], form=form)
        return torch.func.functional_call(made, given, (query, memory))

    given = (query, rows, torch.randn(4).double())
    assert torch.autograd.gradcheck(read, [x.requires_grad_() for x in given], fast_mode=True)


def test_a_sink_far_below_changes_nothing_and_far_above_takes_all() -> None:
    made, query, rows = layer(), torch.randn(2, 3, 12).double(), torch.randn(2, 5, 5).double()
    with torch.no_grad():
        made.null_row.logit.fill_(-1e9)
        low = made(query, rows)
        made.null_row.logit.fill_(1e9)
        torch.testing.assert_close(made(query, rows), made.output_projection.bias.expand(2, 3, 12))
        made.null_row = None
        torch.testing.assert_close(low, made(query, rows))


def test_what_is_assigned_is_checked() -> None:
    made, query, rows = layer(), torch.randn(2, 3, 12).double(), torch.randn(2, 5, 5).double()
    made.null_row = Sink(3).double()
    with pytest.raises(xa.ContractError, match="`sink` must be made for 4 heads, got 3 scores"):
        made(query, rows)
    made.null_row = torch.nn.Identity()
    with pytest.raises(xa.ContractError, match="`null_row` must be a NullRow or a Sink"):
        made(query, rows)
    with pytest.raises(xa.ContractError, match="`heads` must be an integer of at least 1"):
        Sink(0)
    made.null_row = NullRow(2, 3, 3).double()
    assert made(query, made.remember(rows, [5, 0]))[1].any()  # a null row is read
