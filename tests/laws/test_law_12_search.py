"""Law 12. One beam is greedy, a beam as wide as the tree exhaustive, and a batch is its parts.

The second opinion reads each sentence alone, all at once, without a cache.
"""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from crossattention.kernels.native.library import absent, best
from crossattention.seq2seq import BeamOptions, Config, EncoderDecoder, beam, greedy, halve

needs_native = pytest.mark.skipif(
    absent() != "" or best() == "portable", reason="weights are halved for the native kernel"
)
LENGTHS = [5, 1, 7, 3, 2, 6, 4, 7]


def model_and_sources(seed: int, norm: str = "pre") -> tuple[EncoderDecoder, Tensor]:
    torch.manual_seed(seed)
    config = Config(
        vocabulary=6, width=12, heads=3, feed_forward=16, encoder_layers=1, decoder_layers=2,
        norm=norm, max_length=32,
    )  # fmt: skip
    return EncoderDecoder(config).double().eval(), torch.randint(3, 6, (len(LENGTHS), 7))


@torch.no_grad()
def alone(model: EncoderDecoder, source: Tensor, tokens: list[int]) -> Tensor:
    """Log-probabilities after begin and each token, for one sentence without padding."""
    target = torch.tensor([[model.config.begin, *tokens]])
    memory = model.encode(source[None])
    scores = model.logits(model.decode(target, memory))[0].log_softmax(-1)
    return scores


def by_hand(model: EncoderDecoder, source: Tensor, limit: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < limit:
        scores = alone(model, source, tokens)[-1]
        scores[[model.config.pad, model.config.begin]] = -torch.inf
        if int(scores.argmax()) == model.config.end:
            break
        tokens.append(int(scores.argmax()))
    return tokens


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("seed", [0, 1])
def test_greedy_and_one_beam(seed: int, norm: str) -> None:
    model, source = model_and_sources(seed, norm)
    found = greedy(model, source, LENGTHS, max_length=9)
    one = beam(model, source, LENGTHS, BeamOptions(beams=1), max_length=9)
    for row, length in enumerate(LENGTHS):
        wanted = by_hand(model, source[row, :length], 9)
        assert list(found[row].tokens) == wanted
        assert one[row][0].tokens == found[row].tokens
        assert one[row][0].score == pytest.approx(found[row].score, abs=1e-12)
        scores = alone(model, source[row, :length], wanted)
        each = [float(scores[at, token]) for at, token in enumerate([*wanted, model.config.end])]
        assert found[row].token_scores == pytest.approx(each, abs=1e-11)


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("patient", [True, False])
def test_wide_beams_are_exhaustive(patient: bool, penalty: float) -> None:
    model, source = model_and_sources(2)
    tree = [list(tokens) for size in range(4) for tokens in product(range(3, 6), repeat=size)]
    options = BeamOptions(len(tree), len(tree), penalty, early_stopping=not patient)
    found = beam(model, source[:3], LENGTHS[:3], options, max_length=3)
    for row, each in enumerate(found):
        scored = []
        for tokens in tree:
            scores = alone(model, source[row, : LENGTHS[row]], tokens)
            total = sum(float(scores[at, y]) for at, y in enumerate([*tokens, model.config.end]))
            scored.append((total / (len(tokens) + 1) ** penalty, tuple(tokens)))
        scored.sort(reverse=True)
        assert [h.tokens for h in each] == [tokens for _, tokens in scored]
        assert [h.score for h in each] == pytest.approx([score for score, _ in scored])


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_batch_is_its_sentences(norm: str, beams: int) -> None:
    model, source = model_and_sources(3, norm)
    options = BeamOptions(beams=beams, nbest=beams)
    together = beam(model, source, LENGTHS, options, align=True)
    assert len({len(found[0].tokens) for found in together}) > 1  # they end at different times
    for row, length in enumerate(LENGTHS):
        single = beam(model, source[row : row + 1, :length], [length], options, align=True)[0]
        for left, right in zip(together[row], single, strict=True):
            assert left.tokens == right.tokens
            assert left.token_scores == pytest.approx(right.token_scores, abs=1e-11)
            torch.testing.assert_close(left.alignment, right.alignment)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_prepared_decoder_is_the_model(beams: int) -> None:
    """In float32 a search may step a prepared decoder, which must follow lanes and weights."""
    model, source = model_and_sources(3)
    model = model.float()
    for _ in range(2):
        for row, found in enumerate(beam(model, source, LENGTHS, BeamOptions(beams, beams))):
            for each in found:
                scores = alone(model, source[row, : LENGTHS[row]], list(each.tokens))
                tokens = [*each.tokens, model.config.end]
                wanted = [float(scores[at, token]) for at, token in enumerate(tokens)]
                assert each.token_scores == pytest.approx(wanted, abs=1e-4)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(-0.5)


@needs_native
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_prepared_model_of_half_weights_is_the_rounded_one(dtype: torch.dtype) -> None:
    """Weights are rounded and nothing else is, whether few rows are mapped or many."""
    torch.manual_seed(3)
    config = Config(6, 48, 3, 80, encoder_layers=1, decoder_layers=2, max_length=32)
    model, plain = EncoderDecoder(config).eval(), EncoderDecoder(config).eval()
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        for each in plain.modules():
            if isinstance(each, nn.Linear | nn.Embedding):
                each.weight.copy_(each.weight.to(dtype))
    halve(model, dtype)
    for lengths in (LENGTHS, 40 * LENGTHS):
        source = torch.randint(3, 6, (len(lengths), 7))
        found, right = (beam(each, source, lengths, max_length=5) for each in (model, plain))
        for (ours, *_), (wanted, *_) in zip(found, right, strict=True):
            assert ours.tokens == wanted.tokens
            assert ours.token_scores == pytest.approx(wanted.token_scores, abs=1e-5)
