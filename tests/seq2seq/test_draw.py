"""Samples come from the distribution that the options describe, and from nowhere else."""

from __future__ import annotations

import pytest
import torch

from crossattention import ContractError
from crossattention.seq2seq import Hypothesis, SampleOptions, greedy, sample
from crossattention.seq2seq.draw import draw
from seq2seq.models import sources, tiny

LENGTHS = [5, 1, 7, 3, 2]
LOGITS = torch.tensor([0.1, 2.0, -1.0, 1.2, -torch.inf, 0.7, 1.9])


def chance(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(options: SampleOptions, seed: int) -> list[list[Hypothesis]]:
    source, lengths = sources(LENGTHS)
    return sample(tiny(1), source, lengths, options, generator=chance(seed))


def tokens(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[each.tokens for each in lanes] for lanes in found]


def frequencies(options: SampleOptions) -> torch.Tensor:
    scores = LOGITS.log_softmax(-1).expand(2, 10_000, -1)
    return torch.bincount(draw(scores, options, chance(0)).flatten(), minlength=7) / 20_000


@pytest.mark.parametrize(
    "options",
    [SampleOptions(top_k=1), SampleOptions(top_p=1e-6), SampleOptions(temperature=1e-4)],
)
def test_a_distribution_of_one_token_is_greedy(options: SampleOptions) -> None:
    source, lengths = sources(LENGTHS)
    best = greedy(tiny(1), source, lengths)
    for found, want in zip(drawn(options, 0), best, strict=True):
        assert found[0].tokens == want.tokens
        assert found[0].token_scores == pytest.approx(want.token_scores)
        assert found[0].score == pytest.approx(want.score)


def test_chance_comes_from_the_generator_alone() -> None:
    options, model = SampleOptions(samples=3), tiny(1)
    source, lengths = sources(LENGTHS)
    before = torch.get_rng_state()
    found = [
        tokens(sample(model, source, lengths, options, generator=chance(seed)))
        for seed in (5, 5, 6)
    ]
    assert torch.equal(before, torch.get_rng_state())
    assert found[0] == found[1] != found[2]


def test_samples_of_a_sentence_are_drawn_independently() -> None:
    found = tokens(drawn(SampleOptions(samples=4), 2))
    assert all(len(lanes) == 4 for lanes in found)
    assert any(len(set(lanes)) > 1 for lanes in found)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_divides_log_probabilities(temperature: float) -> None:
    want = (LOGITS / temperature).softmax(-1)
    got = frequencies(SampleOptions(temperature=temperature))
    torch.testing.assert_close(got, want, atol=0.015, rtol=0)
    assert got[4] == 0  # what the rules hide is never drawn


def test_top_k_keeps_the_likeliest_k() -> None:
    left = torch.full((7,), -torch.inf)
    left[[1, 6, 3]] = LOGITS[[1, 6, 3]]
    got = frequencies(SampleOptions(top_k=3))
    torch.testing.assert_close(got, left.softmax(-1), atol=0.015, rtol=0)
    assert (got > 0).sum() == 3


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, 1), (0.5, 2), (0.66, 2), (0.7, 3), (1.0, 6)])
def test_top_p_keeps_the_fewest_tokens_that_hold_p(top_p: float, kept: int) -> None:
    chances = LOGITS.softmax(-1)
    order = chances.argsort(descending=True)[:kept]
    left = torch.zeros(7)
    left[order] = chances[order] / chances[order].sum()
    assert chances[order].sum() >= top_p - 1e-6 > chances[order[:-1]].sum() - 1e-6
    got = frequencies(SampleOptions(top_p=top_p))
    torch.testing.assert_close(got, left, atol=0.015, rtol=0)


def test_top_p_acts_on_what_temperature_and_top_k_left() -> None:
    cold = (LOGITS / 0.25).softmax(-1)
    assert cold[[1, 6]].sum() > 0.9 > LOGITS.softmax(-1)[[1, 6, 3]].sum()
    got = frequencies(SampleOptions(temperature=0.25, top_k=5, top_p=0.9))
    assert (got > 0).nonzero().flatten().tolist() == [1, 6]


@pytest.mark.parametrize(
    "bad",
    [
        {"samples": 0}, {"temperature": 0}, {"temperature": -1.0}, {"temperature": float("nan")},
        {"top_k": 0}, {"top_k": 1.5}, {"top_p": 0}, {"top_p": 1.1}, {"top_p": True},
    ],
)  # fmt: skip
def test_distributions_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ContractError, match="|".join(bad)):
        SampleOptions(**bad)  # type: ignore[arg-type]
