"""A model with weights in half precision is the model with rounded weights, step for step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.halves import rounded
from crossattention.errors import ContractError
from crossattention.kernels.native.library import absent, best
from crossattention.kernels.native.linear import HALVES
from crossattention.seq2seq import Config, EncoderDecoder, halve
from crossattention.seq2seq.prepared import prepared
from seq2seq.models import sources
from seq2seq.test_prepared import as_it_is, assert_same, searched

needs_native = pytest.mark.skipif(
    absent() != "" or best() == "portable", reason="weights are halved for the native kernel"
)


def built(norm: str = "pre", width: int = 48) -> EncoderDecoder:
    torch.manual_seed(0)
    config = Config(
        vocabulary=211, width=width, heads=3, feed_forward=80, encoder_layers=2, decoder_layers=2,
        norm=norm, max_length=32,
    )  # fmt: skip
    model = EncoderDecoder(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@needs_native
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_searches_find_what_the_rounded_model_finds(norm: str, dtype: torch.dtype) -> None:
    model = built(norm)
    plain, half = rounded(model, dtype), halve(copy.deepcopy(model), dtype)
    with torch.inference_mode():
        assert prepared(half) is not None
    wanted = searched(plain)
    assert_same(searched(half), wanted)
    assert_same(as_it_is(half), wanted)
    unlike = [abs(a.score - b.score) for a, b in zip(searched(model), wanted, strict=True)]
    assert max(unlike) > 2e-4  # rounding shows: more than is let pass


@needs_native
def test_known_targets_are_scored_as_by_the_rounded_model() -> None:
    model = built()
    plain, half = rounded(model, torch.bfloat16), halve(model)
    source, lengths = sources([9, 4, 7, 1], vocabulary=211)
    target = torch.randint(3, 211, (4, 5))
    real = torch.tensor(lengths)
    with torch.no_grad():
        found, wanted = (each(source, real, target) for each in (half, plain))
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@needs_native
def test_half_the_bytes_are_held(tmp_path: Path) -> None:
    model = built()
    plain = rounded(model, torch.bfloat16)
    weights = sum(each.numel() for each in model.parameters() if each.dim() == 2)
    halve(model)
    held = [each for each in model.state_dict().values() if each.dtype == torch.bfloat16]
    assert sum(each.nbytes for each in held) == 2 * weights
    assert all(each.dim() == 1 for each in model.parameters())  # norms and biases are left
    model.save(tmp_path)
    again = EncoderDecoder.load(tmp_path).state_dict()
    assert all(torch.equal(each, again[name]) for name, each in plain.state_dict().items())


def train(model: EncoderDecoder) -> None:
    model.train()


def widen(model: EncoderDecoder) -> None:
    model.double()


def watch(model: EncoderDecoder) -> None:
    model.encoder[0].feed_forward.register_forward_hook(lambda *_: None)


@needs_native
@pytest.mark.parametrize("change", [train, widen, watch])
def test_what_search_runs_as_it_is_is_refused(change: Callable[[EncoderDecoder], None]) -> None:
    model = built()
    change(model)
    with pytest.raises(ContractError, match="one that search runs as it is"):
        halve(model)


@needs_native
def test_refused_in_words_and_left_as_it_was() -> None:
    model = built()
    for dtype in (torch.float32, torch.int8):
        with pytest.raises(ContractError, match="`dtype` must be bfloat16 or float16"):
            halve(model, dtype)
    with pytest.raises(ContractError, match="multiple of 16"):
        halve(built(width=24))
    with pytest.raises(ContractError, match="half precision"):
        halve(nn.Linear(16, 16))  # type: ignore[arg-type]
    with torch.no_grad():
        model.decoder[1].feed_forward.contract.weight[0, 0] = 7e4
    before = [type(each) for each in model.modules()]
    with pytest.raises(ContractError, match="`weights` must be at most 65504"):
        halve(model, torch.float16)
    assert [type(each) for each in model.modules()] == before


@needs_native
def test_halves_of_one_dtype_are_not_rounded_to_another() -> None:
    model = halve(built(), torch.bfloat16)
    with pytest.raises(ContractError, match="one whose weights were rounded to torch.bfloat16"):
        halve(model, torch.float16)
    assert halve(model).embedding.tokens.weight.dtype is torch.bfloat16


def test_without_the_native_kernel_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossattention.seq2seq.half.absent", lambda: "it is not built")
    with pytest.raises(ContractError, match="without the native kernel: it is not built"):
        halve(built())
