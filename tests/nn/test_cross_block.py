"""A block that reads a memory: of another width, remembered or fresh."""

from __future__ import annotations

import pytest
import torch

from crossattention.nn import CrossBlock, JointBlock


@pytest.mark.parametrize("form", ["raw", "projected"])
@pytest.mark.parametrize("kind", [CrossBlock, JointBlock])
def test_remembered_equals_fresh(kind: type[CrossBlock | JointBlock], form: str) -> None:
    torch.manual_seed(0)
    block = kind(12, 3, 7, memory_width=5).double()
    stream, rows = torch.randn(2, 3, 12).double(), torch.randn(2, 7, 5).double()
    memory = block.remember(rows, [4, 7], form=form)
    kept = {content.key is not None for content in memory.contents.values()}
    assert kept == {form == "projected"}
    found = block(stream, memory)
    for one, given, length, wanted in zip(stream, rows, [4, 7], found, strict=True):
        torch.testing.assert_close(block(one[None], given[None, :length])[0], wanted)


@pytest.mark.parametrize("kind", [CrossBlock, JointBlock])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_value_is_the_definition(kind: type[CrossBlock | JointBlock], norm: str) -> None:
    torch.manual_seed(1)
    block = kind(12, 3, 7, norm=norm).double()
    stream, rows = torch.randn(2, 3, 12).double(), torch.randn(2, 7, 12).double()

    def read(x: torch.Tensor) -> torch.Tensor:
        return block.cross_attention(x, rows if kind is CrossBlock else (rows, x))

    first, second = block.around_cross.norm, block.around_feed.norm
    if norm == "pre":
        wanted = stream + read(first(stream))
        wanted = wanted + block.feed_forward(second(wanted))
    else:
        wanted = first(stream + read(stream))
        wanted = second(wanted + block.feed_forward(wanted))
    torch.testing.assert_close(block(stream, rows), wanted)


def test_memory_is_as_wide_as_the_stream_unless_said() -> None:
    assert CrossBlock(12, 3, 7).cross_attention.sizes.memory_widths == (12, 12)
    assert CrossBlock(12, 3, 7, memory_width=5).cross_attention.sizes.memory_widths == (5, 5)
