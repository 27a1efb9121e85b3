"""A query former: the laws, and which layers read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import summaries
from crossattention import ContractError
from crossattention.nn import QueryFormer

WIDTH = 5  # of the rows


def make(every: int = 2) -> QueryFormer:
    torch.manual_seed(0)
    former = QueryFormer(
        12, 3, queries=2, memory_width=WIDTH, depth=3, every=every, feed_forward=7
    )  # fmt: skip
    summaries.disturb(former)
    return former


@pytest.mark.parametrize("law", summaries.LAWS, ids=lambda law: law.__name__)
def test_law(law: Callable[[Any, int], None]) -> None:
    law(make(), WIDTH)


@pytest.mark.parametrize("form", ["raw", "projected"])
def test_gradients_reach_everything(form: str) -> None:
    former = make()
    former.form = form
    summaries.check_gradients(former, WIDTH)


@pytest.mark.parametrize(("every", "read"), [(1, [0, 1, 2]), (2, [0, 2]), (3, [0]), (7, [0])])
def test_every_so_many_layers_read_from_the_first_on(every: int, read: list[int]) -> None:
    former = make(every)
    reading = [i for i, each in enumerate(former.layers) if each.cross_attention is not None]
    assert reading == read
    assert len(former.remember(summaries.rows_of(WIDTH)).contents) == len(read)


def test_queries_speak_with_one_another() -> None:
    """What one query starts from changes what another ends as."""
    former, rows = make(), summaries.rows_of(WIDTH)
    before = former(rows)
    with torch.no_grad():
        former.queries.weight[1].add_(torch.randn(12))
    assert not torch.allclose(former(rows)[:, 0], before[:, 0], atol=1e-6)


def test_dropout_is_everywhere_and_in_training_only() -> None:
    torch.manual_seed(3)
    former = QueryFormer(12, 3, queries=2, memory_width=WIDTH, depth=2, dropout=0.5).double()
    rows = summaries.rows_of(WIDTH)
    assert not torch.equal(former(rows), former(rows))
    former.eval()
    assert torch.equal(former(rows), former(rows))
    layer = former.layers[0]
    assert [layer.self_attention.dropout, layer.cross_attention.dropout] == [0.5, 0.5]


@pytest.mark.parametrize("name", ["queries", "depth", "every", "memory_width", "dropout"])
def test_refuses(name: str) -> None:
    sizes: dict[str, Any] = {"queries": 2, "memory_width": WIDTH, "depth": 2, name: -1}
    with pytest.raises(ContractError, match=name):
        QueryFormer(12, 3, **sizes)
