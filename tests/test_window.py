"""Windows: what stands within reach of a query, and nothing else, may be read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import crossattention as xa
from crossattention.window import from_window

REACHES = [(0, 0), (2, 0), (0, 3), (1.5, 2), (None, 2), (3, None), (None, None)]
SHAPES = [((5,), (7,)), ((5,), (3, 7)), ((3, 5), (7,)), ((1, 5), (3, 7)), ((3, 5), (3, 7))]


@pytest.mark.parametrize(("queries", "memories"), SHAPES, ids=str)
@pytest.mark.parametrize(("before", "after"), REACHES, ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.float32, torch.float16])
def test_each_row_is_judged_by_its_distance(
    queries: tuple[int, ...], memories: tuple[int, ...], before: Any, after: Any, kind: torch.dtype
) -> None:
    torch.manual_seed(0)
    query, memory = (torch.randint(0, 9, shape).to(kind) for shape in (queries, memories))
    visible = from_window(query, memory, before=before, after=after)
    left, right = query.reshape(-1, 5).tolist(), memory.reshape(-1, 7).tolist()
    b = max(len(left), len(right))
    assert (visible.shape, visible.dtype) == ((b, 1, 5, 7), torch.bool)
    low = -torch.inf if before is None else -before
    high = torch.inf if after is None else after
    for n in range(b):
        of_query, of_memory = left[n % len(left)], right[n % len(right)]
        wanted = [[low <= m - q <= high for m in of_memory] for q in of_query]
        assert visible[n, 0].tolist() == wanted


def test_before_is_back_and_after_is_ahead() -> None:
    row = torch.arange(7)
    assert from_window(row[3:4], row, before=2, after=0).flatten().nonzero().flatten().tolist() == [
        1, 2, 3,
    ]  # fmt: skip
    assert from_window(row[3:4], row, before=0, after=1).flatten().nonzero().flatten().tolist() == [
        3, 4,
    ]  # fmt: skip


def test_causal_order_is_a_window() -> None:
    torch.manual_seed(1)
    query, rows = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    visible = from_window(torch.arange(5) + 2, torch.arange(7), before=None, after=0)
    causal = xa.attend(query, rows, rows, causal="bottom_right")
    assert torch.equal(xa.attend(query, rows, rows, visible=visible), causal)


@pytest.mark.parametrize("shift", [torch.tensor(2**55), torch.tensor(2.0**20)])
def test_only_differences_count(shift: torch.Tensor) -> None:
    torch.manual_seed(2)
    query, memory = torch.randint(0, 30, (3, 5)), torch.randint(0, 30, (3, 7))
    near = from_window(query, memory, before=4, after=6)
    moved = from_window(query + shift, memory + shift, before=4, after=6)
    assert torch.equal(near, moved)


def test_integers_are_compared_exactly() -> None:
    far = 2**53 + 1  # no float64 is this number
    query, memory = torch.tensor([0]), torch.tensor([far - 1, far, far + 1])
    assert from_window(query, memory, before=0, after=far).flatten().tolist() == [True, True, False]
    assert from_window(memory, query, before=far, after=0).flatten().tolist() == [True, True, False]
    assert from_window(memory, query, before=2**80, after=None).all()


def test_integers_beside_times() -> None:
    frames, seconds = torch.tensor([2**24 + 1]), torch.tensor([2.0**24], dtype=torch.float32)
    assert not from_window(frames, seconds, before=0.5, after=0.5).any()  # float32 has no 2^24 + 1
    assert from_window(frames, seconds, before=1, after=0).all()


def test_a_query_with_nothing_in_reach_reads_nothing() -> None:
    torch.manual_seed(3)
    query, rows = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    places = torch.tensor([[0, 50, 3], [60, 2, 4]])
    visible = from_window(places, torch.arange(5), before=1, after=1)
    found = xa.attend(query, rows, rows, visible=visible)
    empty = torch.tensor([[False, True, False], [True, False, False]])
    assert not found[empty].any()
    assert found[~empty].all()


def test_shared_memories_give_each_query_sequence_its_positions() -> None:
    torch.manual_seed(4)
    query, rows = torch.randn(3, 5, 8), torch.randn(2, 7, 8)
    owner, places = torch.tensor([1, 0, 1]), torch.randint(0, 9, (2, 7))
    visible = from_window(torch.arange(5), places[owner], before=3, after=2)
    found = xa.attend(query, rows, rows, visible=visible, owner=xa.Owner.of(owner, 2))
    for n, m in enumerate(owner.tolist()):
        own = from_window(torch.arange(5), places[m], before=3, after=2)
        alone = xa.attend(query[n : n + 1], rows[m : m + 1], rows[m : m + 1], visible=own)
        torch.testing.assert_close(found[n : n + 1], alone)


@pytest.mark.parametrize("t", [0, 3])
@pytest.mark.parametrize("s", [0, 5])
def test_no_rows(t: int, s: int) -> None:
    assert from_window(torch.arange(t), torch.arange(s), before=1, after=1).shape == (1, 1, t, s)
    nobody = torch.zeros(0, t)
    assert from_window(nobody, torch.arange(s), before=1, after=None).shape == (0, 1, t, s)


ROW = torch.arange(5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_positions": [0, 1]}, "`query_positions` must be integers or floats"),
        ({"query_positions": ROW > 2}, "`query_positions` must be integers or floats"),
        ({"memory_positions": torch.tensor(3)}, "`memory_positions` must be integers or floats"),
        ({"memory_positions": torch.zeros(2, 1, 5)}, r"got a float32 tensor of shape \[2, 1, 5\]"),
        ({"memory_positions": torch.tensor([0.0, torch.nan])}, "`memory_positions` must be finite"),
        ({"query_positions": torch.tensor([torch.inf])}, "`query_positions` must be finite"),
        ({"query_positions": torch.zeros(3, 5)}, "`memory_positions` must be .* beside query"),
        ({"query_positions": torch.zeros(0, 5)}, "`memory_positions` must be .* beside query"),
        ({"query_positions": torch.zeros(5, device="meta")}, "on meta"),
        ({"before": -1}, "`before` must be a number of at least 0, or None, got -1"),
        ({"after": -0.5}, "`after` must be a number of at least 0"),
        ({"after": torch.inf}, "None sets no limit"),
        ({"after": torch.nan}, "`after` must be"),
        ({"before": True}, "`before` must be"),
        ({"before": ROW}, "`before` must be"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    right = {"query_positions": ROW, "memory_positions": torch.zeros(2, 5), "before": 1, "after": 1}
    from_window(**right)
    with pytest.raises(xa.ContractError, match=message):
        from_window(**(right | change))


def test_one_graph_for_every_size() -> None:
    torch.compiler.reset()

    def window(query: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        return from_window(query, memory, before=2, after=1.5)

    compiled = torch.compile(window, fullgraph=True, dynamic=True, backend="aot_eager")
    for t, s in ((5, 7), (3, 2), (4, 11)):
        places = torch.arange(t) * 2.0, torch.arange(s).expand(3, s)
        assert torch.equal(compiled(*places), window(*places))
