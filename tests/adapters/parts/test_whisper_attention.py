"""An adopted attention module of whisper's signature: beams of several clips, projected once."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from adapters.parts.ask import adopted, same_numbers
from adapters.parts.whispering import MultiHeadAttention
from crossattention.adapters.parts.whisper import WhisperAttention

CLIPS, BEAMS, T, S, C, H = 2, 5, 3, 11, 12, 3
PART = WhisperAttention()


def drawn() -> nn.Module:
    """Draw one in float64."""
    made = MultiHeadAttention(C, H).double()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


@pytest.mark.parametrize("beams", [1, BEAMS])
@pytest.mark.parametrize("cached", [True, False])
def test_beams_of_several_clips(beams: int, cached: bool) -> None:
    torch.manual_seed(0)
    stock = drawn()
    stream, clips = torch.randn(CLIPS * beams, T, C).double(), torch.randn(CLIPS, S, C).double()
    want = stock(stream, clips.repeat_interleave(beams, 0))[0]
    module = adopted(PART, stock)
    cache: dict[nn.Module, Tensor] | None = {} if cached else None
    calls: list[int] = []
    module.key.register_forward_hook(lambda *given: calls.append(len(given[1][0])))
    for _ in range(3):
        torch.testing.assert_close(module(stream, clips, kv_cache=cache)[0], want)
    assert calls == ([CLIPS] if cached else [CLIPS] * 3)
    if cache is not None:
        assert cache.keys() == {module.key, module.value}
        assert [len(each) for each in cache.values()] == [CLIPS, CLIPS]


def test_self_attention_and_gradients_are_as_they_were() -> None:
    torch.manual_seed(0)
    stock, stream = drawn(), torch.randn(CLIPS, T, C).double()
    clips = torch.randn(CLIPS, S, C).double()
    same_numbers(PART, stock, lambda each: each(stream)[0])
    same_numbers(PART, stock, lambda each: each(stream, clips)[0])
    shown = copy.deepcopy(stock)
    shown.use_sdpa = False
    for ours, theirs in zip(adopted(PART, shown)(stream, clips), shown(stream, clips), strict=True):
        torch.testing.assert_close(ours, theirs)
