"""Interleaved media: text reads the latest medium before it, or all before it, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.media import from_media, media_count

MODES = ("latest", "all_previous")


def drawn() -> tuple[Tensor, Tensor]:
    """Draw markers [3, 11] for texts with none, one and three media, and the rows' media [3, 7]."""
    starts = torch.zeros(3, 11, dtype=torch.bool)
    starts[1, 4] = True
    starts[2, [0, 5, 10]] = True
    return starts, torch.tensor(
        [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 2, 2, 2], [1, 1, 2, 2, 2, 3, 3]]
    )


def by_hand(starts: Tensor, media: Tensor, reads: str) -> Tensor:
    """Walk through each text as a reader does, opening one medium after another."""
    visible = torch.zeros(len(starts), 1, starts.shape[1], media.shape[1], dtype=torch.bool)
    for n, row in enumerate(starts.tolist()):
        opened: list[int] = []
        for t, begins in enumerate(row):
            if begins:
                opened.append(len(opened) + 1)
            seen = opened if reads == "all_previous" else opened[-1:]
            for s, medium in enumerate(media[n].tolist()):
                visible[n, 0, t, s] = medium in seen
    return visible


@pytest.mark.parametrize("reads", MODES)
def test_reading_from_left_to_right(reads: str) -> None:
    starts, media = drawn()
    visible = from_media(media_count(starts), media, reads=reads)
    assert visible.dtype == torch.bool
    assert torch.equal(visible, by_hand(starts, media, reads))


def test_the_latest_is_the_default() -> None:
    count, media = torch.tensor([[1, 2]]), torch.tensor([1, 2, 2])
    assert torch.equal(from_media(count, media), from_media(count, media, reads="latest"))
    assert not torch.equal(from_media(count, media), from_media(count, media, reads=MODES[1]))


def test_a_marker_counts_from_its_own_row_on() -> None:
    starts = torch.tensor([[False, True, False, True, True], [True, False, False, False, False]])
    count = media_count(starts)
    assert count.dtype == torch.int64
    assert count.tolist() == [[0, 1, 1, 2, 3], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("reads", MODES)
def test_text_before_the_first_medium_reads_nothing(reads: str) -> None:
    torch.manual_seed(0)
    starts, media = drawn()
    layer = xa.CrossAttention(12, 3, memory_width=5)
    torch.nn.init.ones_(layer.output_projection.bias)
    stream, rows = torch.randn(3, 11, 12), torch.randn(3, 7, 5)
    visible = from_media(media_count(starts), media, reads=reads)
    added = stream + layer(stream, layer.remember(rows), visible=visible)
    before = media_count(starts) == 0
    assert before.sum(1).tolist() == [11, 4, 0]
    assert torch.equal(added[before], stream[before])
    assert bool((added[~before] != stream[~before]).any(-1).all())


@pytest.mark.parametrize("reads", MODES)
def test_media_that_have_not_begun_may_be_there_already(reads: str) -> None:
    starts, media = drawn()
    count = media_count(starts)
    whole = from_media(count, media, reads=reads)
    for t in range(1, 12):
        assert torch.equal(from_media(count[:, :t], media, reads=reads), whole[:, :, :t])
        step = from_media(count[:, t - 1 : t], media, reads=reads)
        assert torch.equal(step, whole[:, :, t - 1 : t])


@pytest.mark.parametrize("reads", MODES)
def test_rows_may_stand_in_any_order(reads: str) -> None:
    starts, media = drawn()
    order = torch.tensor([4, 0, 6, 2, 5, 1, 3])
    count = media_count(starts)
    visible = from_media(count, media, reads=reads)
    assert torch.equal(from_media(count, media[:, order], reads=reads), visible[..., order])


@pytest.mark.parametrize("reads", MODES)
def test_each_sequence_has_its_own_counts_and_media(reads: str) -> None:
    starts, media = drawn()
    visible = from_media(media_count(starts), media, reads=reads)
    order = [2, 0, 1]
    assert torch.equal(from_media(media_count(starts[order]), media[order], reads=reads),
                       visible[order])  # fmt: skip
    shared = media[2]
    counts = media_count(starts)
    together = from_media(counts, shared, reads=reads)
    assert torch.equal(together, from_media(counts, shared[None], reads=reads))
    assert torch.equal(together, from_media(counts, shared.expand(3, 7), reads=reads))


@pytest.mark.parametrize("reads", MODES)
def test_padded_media_are_hidden_by_lengths(reads: str) -> None:
    torch.manual_seed(1)
    starts = torch.tensor([[False, True, False, True], [True, False, False, False]])
    media, lengths = torch.tensor([[1, 1, 2, 2, 2], [1, 1, 1, 1, 1]]), [5, 2]
    query, rows = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
    rows[1, 2:] = torch.nan
    visible = from_media(media_count(starts), media, reads=reads)
    found = xa.attend(query, rows, rows, visible=visible, lengths=lengths)
    for n, length in enumerate(lengths):
        own = from_media(media_count(starts[n : n + 1]), media[n, :length], reads=reads)
        kept = rows[n : n + 1, :length]
        alone = xa.attend(query[n : n + 1], kept, kept, visible=own)
        torch.testing.assert_close(found[n : n + 1], alone)


def test_padding_within_media_is_hidden_by_a_mask() -> None:
    padding = torch.tensor([[False, True, False, True]])
    visible = from_media(torch.tensor([[0, 1, 2]]), torch.tensor([1, 1, 2, 2]))
    both = visible & xa.from_padding_mask(padding)
    assert both[0, 0].int().tolist() == [[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_every_kind_of_integer(kind: torch.dtype) -> None:
    starts, media = drawn()
    count = media_count(starts)
    for reads in MODES:
        visible = from_media(count, media, reads=reads)
        assert torch.equal(from_media(count.to(kind), media, reads=reads), visible)
        assert torch.equal(from_media(count, media.to(kind), reads=reads), visible)


@pytest.mark.parametrize("reads", MODES)
def test_where_values_go_unchecked_nothing_is_opened(reads: str) -> None:
    counts, media = torch.tensor([[[0, 1]], [[0, 0]]]), torch.tensor([[0, -1, 1], [0, 1, 2]])
    found = torch.vmap(lambda count, rows: from_media(count, rows, reads=reads))(counts, media)
    assert found[:, 0, 0].int().tolist() == [[[0, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 0, 0]]]


@pytest.mark.parametrize("sizes", [(0, 3, 5), (2, 0, 5), (2, 3, 0)], ids=str)
def test_no_rows(sizes: tuple[int, int, int]) -> None:
    b, t, s = sizes
    count = media_count(torch.zeros(b, t, dtype=torch.bool))
    assert from_media(count, torch.ones(s, dtype=torch.long)).shape == (b, 1, t, s)


COUNT, MEDIA = torch.tensor([[0, 1, 1], [1, 1, 2]]), torch.tensor([1, 1, 2, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": COUNT.float()}, r"`count` must be integers \[b, t\]"),
        ({"count": COUNT > 0}, "see media_count"),
        ({"count": COUNT[0]}, r"`count` must be .* got a int64 tensor of shape \[3\]"),
        ({"count": [[0, 1, 1]]}, "`count` must be"),
        ({"count": torch.tensor([[0, 1, 1], [1, 2, 1]])}, r"falling in sequences \[1\]"),
        ({"count": torch.tensor([[0, 1, 0], [1, 1, 1]])}, "repeat the last count on padding"),
        ({"count": torch.tensor([[-1, 0, 1]])}, "`count` must be 0 or more"),
        (
            {"count": torch.tensor([[0, 1, 2], [1, 2, 3]])},
            r"last medium, got more in sequences \[1",
        ),
        ({"count": COUNT, "media": torch.zeros(0).long()}, "at most the last medium"),
        ({"media": torch.tensor([[1, 2, 2], [1, 1, 1]])}, r"got more in sequences \[1\]"),
        ({"media": MEDIA - 1}, "`media` must be 1 or more, got 0; 0 is no medium"),
        ({"media": MEDIA.float()}, "`media` must be integers"),
        ({"media": MEDIA > 1}, "`media` must be integers"),
        ({"media": [1, 2]}, "`media` must be integers"),
        ({"media": MEDIA.expand(3, 4)}, r"`media` must be .* with b = 2"),
        ({"media": MEDIA[None, None]}, r"got a int64 tensor of shape \[1, 1, 4\]"),
        ({"media": MEDIA.to("meta")}, "on cpu, got a int64 tensor"),
        ({"reads": "last"}, '`reads` must be "latest" or "all_previous"'),
        ({"reads": None}, "`reads` must be"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    right = {"count": COUNT, "media": MEDIA}
    from_media(**right)
    with pytest.raises(xa.ContractError, match=message):
        from_media(**(right | change))


def test_starts_are_marked_by_booleans() -> None:
    for wrong in (COUNT, COUNT[0] > 0, [[True]]):
        with pytest.raises(xa.ContractError, match=r"`starts` must be a bool tensor \[b, t\]"):
            media_count(wrong)


def test_one_graph_for_every_size() -> None:
    torch.compiler.reset()

    def masked(starts: Tensor, media: Tensor) -> Tensor:
        return from_media(media_count(starts), media)

    compiled = torch.compile(masked, fullgraph=True, dynamic=True, backend="aot_eager")
    for b, t, s in ((2, 5, 7), (3, 2, 11), (5, 4, 3)):
        starts = torch.arange(b * t).reshape(b, t) % 5 == 1
        media = torch.arange(s) // 2 + 1
        assert torch.equal(compiled(starts, media), masked(starts, media))
