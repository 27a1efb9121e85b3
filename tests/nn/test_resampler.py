"""A resampler: the laws, with and without shared blocks, with and without reading its queries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import summaries
from crossattention import ContractError
from crossattention.nn import CrossBlock, JointBlock, Resampler

WIDTH = 5  # of the rows
KINDS = [(shared, reads) for shared in (False, True) for reads in (False, True)]


def make(shared: bool, reads_queries: bool) -> Resampler:
    torch.manual_seed(0)
    resampler = Resampler(
        12, 3, queries=2, memory_width=WIDTH, depth=3, feed_forward=7, shared=shared,
        reads_queries=reads_queries,
    )  # fmt: skip
    summaries.disturb(resampler)
    return resampler


@pytest.mark.parametrize("law", summaries.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("shared", "reads_queries"), KINDS)
def test_law(law: Callable[[Any, int], None], shared: bool, reads_queries: bool) -> None:
    law(make(shared, reads_queries), WIDTH)


@pytest.mark.parametrize("form", ["raw", "projected"])
@pytest.mark.parametrize(("shared", "reads_queries"), KINDS)
def test_gradients_reach_everything(shared: bool, reads_queries: bool, form: str) -> None:
    resampler = make(shared, reads_queries)
    resampler.form = form
    # In a common softmax a bias of the rows' keys alone weighs rows against queries.
    unseen = "" if reads_queries else "key_projection.bias"
    summaries.check_gradients(resampler, WIDTH, unseen)


@pytest.mark.parametrize("reads_queries", [False, True])
def test_shared_equals_equal_blocks(reads_queries: bool) -> None:
    shared, own = make(True, reads_queries), make(False, reads_queries)
    state = shared.state_dict()
    for name in own.state_dict():
        parts = name.split(".")
        if parts[0] == "blocks":
            state[name] = state[".".join(["blocks", "0", *parts[2:]])]
    own.load_state_dict(state)
    rows = summaries.rows_of(WIDTH)
    torch.testing.assert_close(shared(rows), own(rows))
    shared.form = own.form = "projected"
    assert [len(x.remember(rows).contents) for x in (shared, own)] == [1, 3]


@pytest.mark.parametrize(("depth", "form"), [(3, "raw"), (60, "projected")])
def test_the_form_follows_how_often_a_block_reads(depth: int, form: str) -> None:
    """Raw while fewer than 23 reads come with these sizes; those of a shared block add up."""
    rows = summaries.rows_of(WIDTH).float().repeat(1, 9000, 1)
    for shared, wanted in ((True, form), (False, "raw")):
        resampler = Resampler(12, 3, queries=2, memory_width=WIDTH, depth=depth, shared=shared)
        kept = {x.key is not None for x in resampler.remember(rows).contents.values()}
        assert kept == {wanted == "projected"}


def test_rows_are_kept_once_for_all_blocks_or_given_up() -> None:
    resampler, rows = make(False, False), summaries.rows_of(WIDTH)
    resampler.form = "raw"
    assert resampler.remember(rows).nbytes == rows.nbytes
    resampler.form = "projected"
    assert resampler.remember(rows).rows is None


def test_scale_and_shift_of_a_norm_before_each_block_live_in_its_projections() -> None:
    """The rewrite of the docstring, against blocks that norm the rows themselves."""
    resampler, rows = make(False, False), summaries.rows_of(WIDTH)
    scale, shift = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    plain = nn.LayerNorm(WIDTH, elementwise_affine=False)
    stream = resampler.queries(len(rows))
    wanted = stream
    for block, gamma, beta in zip(resampler.blocks, scale, shift, strict=True):
        wanted = block(wanted, gamma * plain(rows) + beta)
    with torch.no_grad():
        for block, gamma, beta in zip(resampler.blocks, scale, shift, strict=True):
            for projection in (
                block.cross_attention.key_projection,
                block.cross_attention.value_projection,
            ):
                projection.bias.add_(projection.weight @ beta)
                projection.weight.mul_(gamma)
    torch.testing.assert_close(resampler(rows), resampler.output_norm(wanted))


def test_reading_queries_is_one_softmax_over_both() -> None:
    """Against one cross-attention over memory and queries joined, with tied projections."""
    torch.manual_seed(1)
    joint, plain = JointBlock(12, 3, 7).double(), CrossBlock(12, 3, 7).double()
    attention, single = joint.cross_attention, plain.cross_attention
    for reader in attention.readers:
        reader.load_state_dict({
            name: value for name, value in single.state_dict().items() if name[0] in "kv"
        })  # fmt: skip
    for name in ("query_projection", "output_projection"):
        setattr(attention, name, getattr(single, name))
    stream, memory = torch.randn(2, 3, 12).double(), torch.randn(2, 5, 12).double()
    normed = joint.around_cross.norm(stream)
    both = torch.cat([memory, normed], 1)
    torch.testing.assert_close(attention(normed, (memory, normed)), single(normed, both))
    joint.feed_forward.load_state_dict(plain.feed_forward.state_dict())
    read = stream + single(normed, both)
    wanted = read + joint.feed_forward(joint.around_feed.norm(read))
    torch.testing.assert_close(joint(stream, memory), wanted)


def test_rows_that_follow_are_normed_by_whoever_appends_them() -> None:
    resampler, rows = make(False, False).eval(), summaries.rows_of(WIDTH)
    resampler.form = "raw"
    with torch.no_grad():
        memory = resampler.remember(rows[:, :4])
        longer = memory.append(resampler.memory_norm(rows[:, 4:]))
        torch.testing.assert_close(resampler(resampler.remember(longer)), resampler(rows))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"queries": 0}, "queries"),
        ({"depth": 0}, "depth"),
        ({"memory_width": 0}, "memory_width"),
        ({"shared": 1}, "shared"),
        ({"reads_queries": "no"}, "reads_queries"),
        ({"feed_forward": 0}, "hidden"),
    ],
)
def test_refuses(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ContractError, match=name):
        Resampler(12, 3, **{"queries": 2, **wrong})


def test_rows_stay_while_any_block_reads_them_raw() -> None:
    torch.manual_seed(0)
    resampler = Resampler(8, 2, queries=3, memory_width=6).double().eval()
    resampler.blocks[1].cross_attention.key_norm = nn.LayerNorm(4).double()  # cannot be folded
    rows = torch.randn(2, 20011, 6).double()
    memory = resampler.remember(rows)
    kept = [content.key is not None for content in memory.contents.values()]
    assert kept == [False, True] and memory.rows is not None
    torch.testing.assert_close(resampler(memory), resampler(rows))
