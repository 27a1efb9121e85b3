"""Self-attention: step by step equals all at once, the past follows beams, padding stays out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import crossattention as xa
from crossattention.nn import Cache, DecoderBlock, EncoderBlock


def test_equals_torch_and_padding_stays_out() -> None:
    torch.manual_seed(0)
    layer = xa.SelfAttention(12, 3).double()
    stream = torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = layer.projection(stream).unflatten(-1, (3, 3, 4)).permute(2, 0, 3, 1, 4)
    for causal in (False, True):
        read = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)
        torch.testing.assert_close(layer(stream, causal=causal), layer.output_projection(read))
    readable = torch.arange(5) < torch.tensor([5, 3])[:, None]
    dirty = stream.masked_fill(~readable[..., None], 7.0)
    short = layer(stream[1:, :3])
    torch.testing.assert_close(layer(dirty, readable=readable)[1:, :3], short)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 1, 2), (4, 1), (5,)])
@pytest.mark.parametrize("capacity", [1, 3, 8])
def test_step_by_step_equals_all_at_once(sizes: tuple[int, ...], capacity: int) -> None:
    torch.manual_seed(1)
    layer = xa.SelfAttention(12, 3).double().eval()
    stream = torch.randn(2, 5, 12, dtype=torch.float64)
    cache = layer.start(2, capacity)
    outputs = []
    with torch.no_grad():
        for part in stream.split(sizes, dim=1):
            output, cache = layer.step(part, cache)
            outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), layer(stream, causal=True))


def test_the_past_follows_beams() -> None:
    torch.manual_seed(2)
    layer = xa.SelfAttention(12, 3).double().eval()
    stream = torch.randn(3, 4, 12, dtype=torch.float64)
    index = torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        _, cache = layer.step(stream[:, :3], layer.start(3, 2))
        output, _ = layer.step(stream[index][:, 3:], cache.select(index))
    torch.testing.assert_close(output, layer(stream[index], causal=True)[:, 3:])


def test_a_cache_that_is_extended_twice_keeps_both_futures() -> None:
    torch.manual_seed(3)
    rows = torch.randn(1, 2, 3, 4)
    cache = Cache.empty(rows, capacity=8).extended(rows, rows)
    one = cache.extended(rows + 1, rows + 1)
    two = cache.extended(rows + 2, rows + 2)
    assert torch.equal(one.keys.rows[:, :, 3:6], rows + 1)
    assert torch.equal(two.keys.rows[:, :, 3:6], rows + 2)


def test_decoder_block_order_and_norms() -> None:
    torch.manual_seed(4)
    stream, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    for norm in ("pre", "post"):
        block = DecoderBlock(12, 3, 20, norm=norm).double().eval()
        reads, cross, feed = block.self_attention, block.cross_attention, block.feed_forward
        norms = [block.around_self.norm, block.around_cross.norm, block.around_feed.norm]
        if norm == "pre":
            wanted = stream + reads(norms[0](stream), causal=True)
            wanted = wanted + cross(norms[1](wanted), memory)
            wanted = wanted + feed(norms[2](wanted))
        else:
            wanted = norms[0](stream + reads(stream, causal=True))
            wanted = norms[1](wanted + cross(wanted, memory))
            wanted = norms[2](wanted + feed(wanted))
        torch.testing.assert_close(block(stream, memory), wanted)


def test_refusals() -> None:
    with pytest.raises(xa.ContractError, match="multiple of heads"):
        xa.SelfAttention(10, 3)
    with pytest.raises(xa.ContractError, match=r"`stream` must be .*\[b, t, 12\]"):
        xa.SelfAttention(12, 3)(torch.ones(2, 12))
    with pytest.raises(xa.ContractError, match='`norm` must be "pre" or "post"'):
        EncoderBlock(12, 3, 20, norm="none")
