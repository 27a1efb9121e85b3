"""Adopted openai-whisper: the same tokens, and beams for several clips at once."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from crossattention.adapters.adopt import adopt, release
from crossattention.adapters.parts.whisper import WhisperAttention
from crossattention.errors import ContractError

whisper = pytest.importorskip("whisper")
model_of = pytest.importorskip("whisper.model")

CLIPS, ROWS, WORDS, C, H = 3, 11, 7, 12, 2


def tiny(vocabulary: int = 51865) -> nn.Module:
    """Draw a Whisper of two layers whose clips have 11 encoded rows."""
    sizes = model_of.ModelDimensions(
        n_mels=5, n_audio_ctx=ROWS, n_audio_state=C, n_audio_head=H, n_audio_layer=1,
        n_vocab=vocabulary, n_text_ctx=WORDS, n_text_state=C, n_text_head=H, n_text_layer=2,
    )  # fmt: skip
    made: nn.Module = model_of.Whisper(sizes).eval()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("pieces", [(5,), (3, 1, 1)])
def test_decoder_equals_stock_clip_by_clip(beams: int, pieces: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    model = tiny(17)
    tokens = torch.randint(17, (CLIPS * beams, sum(pieces)))
    clips = torch.randn(CLIPS, ROWS, C)
    want = torch.cat(
        [model.decoder(tokens[i * beams : (i + 1) * beams], clips[i : i + 1]) for i in range(CLIPS)]
    )
    adopt(model)
    cache, hooks = model.install_kv_cache_hooks()
    got = [model.decoder(piece, clips, kv_cache=cache) for piece in tokens.split(pieces, 1)]
    torch.testing.assert_close(torch.cat(got, 1), want)
    crossed = [block.cross_attn for block in model.decoder.blocks]
    kept = [cache[each] for cross in crossed for each in (cross.key, cross.value)]
    assert {len(each) for each in kept} == {CLIPS}
    assert {each.untyped_storage().nbytes() for each in kept} == {CLIPS * ROWS * C * 4}
    for hook in hooks:
        hook.remove()


def options(**given: object) -> object:
    """Options of a decode on the CPU."""
    return whisper.DecodingOptions(
        language="en", fp16=False, without_timestamps=True, sample_len=4, **given
    )


@pytest.mark.parametrize("given", [{}, {"beam_size": 2}, {"beam_size": 5}])
def test_decode_takes_clips_with_beams(given: dict[str, int]) -> None:
    torch.manual_seed(0)
    model = tiny()
    clips = torch.randn(CLIPS, ROWS, C)
    want = [model.decode(clip, options(**given)) for clip in clips]
    adopt(model)
    one_by_one = [model.decode(clip, options(**given)) for clip in clips]
    for found in (model.decode(clips, options(**given)), one_by_one):
        for got, stock in zip(found, want, strict=True):
            assert got.tokens == stock.tokens
            assert got.avg_logprob == pytest.approx(stock.avg_logprob, rel=1e-4)
            torch.testing.assert_close(got.audio_features, stock.audio_features)


def test_stock_fails_where_this_does_not() -> None:
    torch.manual_seed(0)
    with pytest.raises((RuntimeError, AssertionError)):
        tiny().decode(torch.randn(CLIPS, ROWS, C), options(beam_size=2))


def test_sampling_and_languages() -> None:
    torch.manual_seed(0)
    model, clips = tiny(), torch.randn(2, ROWS, C)
    stock = [model.decode(clip, task="lang_id", fp16=False).language for clip in clips]
    adopt(model)
    assert [each.language for each in model.decode(clips, task="lang_id", fp16=False)] == stock
    several = model.decode(
        clips, fp16=False, temperature=1.0, best_of=3, sample_len=3, without_timestamps=True
    )
    assert [each.language for each in several] == stock


def test_scores_are_shown_where_asked_for() -> None:
    """Word timing reads the scores of cross-attention."""
    torch.manual_seed(0)
    model = tiny(17)
    stream, clips = torch.randn(CLIPS, 4, C), torch.randn(CLIPS, ROWS, C)
    cross = model.decoder.blocks[0].cross_attn
    with model_of.disable_sdpa():
        want = cross(stream, clips)
        adopt(model)
        got = cross(stream, clips)
        beams = cross(stream.repeat_interleave(2, 0), clips)
    for ours, stock in zip(got, want, strict=True):
        torch.testing.assert_close(ours, stock)
    torch.testing.assert_close(beams[1][::2], want[1])


def test_training_copies_pickles_and_release() -> None:
    torch.manual_seed(0)
    model = tiny(17)
    tokens, clips = torch.randint(17, (CLIPS, WORDS)), torch.randn(CLIPS, ROWS, C)
    names = [set(vars(each)) for each in model.modules()]
    want = model.decoder(tokens, clips)
    gradients = torch.autograd.grad(want.square().sum(), list(model.decoder.parameters()))
    adopt(model)
    got = model.decoder(tokens, clips)
    torch.testing.assert_close(got, want)
    ours = torch.autograd.grad(got.square().sum(), list(model.decoder.parameters()))
    for each, stock in zip(ours, gradients, strict=True):
        torch.testing.assert_close(each, stock, rtol=1e-3, atol=1e-3)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.decode.model is other
        torch.testing.assert_close(other.decoder(tokens, clips), want)
    release(model)
    assert torch.equal(model.decoder(tokens, clips), want)
    assert [set(vars(each)) for each in model.modules()] == names


def test_refusals() -> None:
    model = tiny(17)
    with pytest.raises(ContractError, match="cache of its own"):
        adopt(model, "raw")
    assert not any("forward" in vars(each) for each in model.modules())
    adopt(model)
    with pytest.raises(ContractError, match="multiple of the 3 clips"):
        model.decoder(torch.zeros(4, 1, dtype=torch.long), torch.randn(CLIPS, ROWS, C))
    module = model.decoder.blocks[0].cross_attn
    assert WhisperAttention().knows(module)
