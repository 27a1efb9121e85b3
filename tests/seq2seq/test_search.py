"""Searches obey their laws: one beam is greedy, a wide one is exhaustive, a batch is its parts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from crossattention import ContractError
from crossattention.seq2seq import (
    BeamOptions,
    EncoderDecoder,
    Hypothesis,
    SampleOptions,
    beam,
    greedy,
    sample,
)
from seq2seq.models import judge, sources, tiny

LENGTHS = [5, 1, 7, 3, 2, 6, 4, 7, 1]
Search = Callable[[EncoderDecoder, Tensor, list[int]], list[list[Hypothesis]]]


def greedily(model: EncoderDecoder, source: Tensor, lengths: list[int]) -> list[list[Hypothesis]]:
    return [[found] for found in greedy(model, source, lengths, align=True)]


def by_beams(options: BeamOptions) -> Search:
    return lambda model, source, lengths: beam(model, source, lengths, options, align=True)


def likeliest(model: EncoderDecoder, source: Tensor, lengths: list[int]) -> list[list[Hypothesis]]:
    return sample(model, source, lengths, SampleOptions(samples=2, top_k=1), align=True)


SEARCHES = {
    "greedy": greedily,
    "beams": by_beams(BeamOptions(beams=3, nbest=3)),
    "wide": by_beams(BeamOptions(beams=5, nbest=2, length_penalty=0.6)),
    "patient": by_beams(BeamOptions(beams=3, nbest=2, early_stopping=False)),
    "long": by_beams(BeamOptions(beams=2, nbest=2, length_penalty=3.0)),
    "samples": likeliest,
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def same(left: Hypothesis, right: Hypothesis) -> None:
    assert left.tokens == right.tokens
    assert left.score == pytest.approx(right.score, abs=1e-12)
    assert left.token_scores == pytest.approx(right.token_scores, abs=1e-12)
    assert left.alignment is not None and right.alignment is not None
    torch.testing.assert_close(left.alignment, right.alignment)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@every_search
def test_scores_and_alignment_are_those_of_reading_all_at_once(
    search: Search, norm: str, positions: str
) -> None:
    model = tiny(1, norm=norm, positions=positions)
    source, lengths = sources(LENGTHS)
    for row, found in enumerate(search(model, source, lengths)):
        for hypothesis in found:
            scores, maps = judge(model, source[row, : lengths[row]], hypothesis)
            torch.testing.assert_close(torch.tensor(hypothesis.token_scores).double(), scores)
            assert hypothesis.alignment is not None
            torch.testing.assert_close(hypothesis.alignment, maps)


@every_search
def test_alignment_rows_sum_to_one_over_real_tokens(search: Search) -> None:
    source, lengths = sources(LENGTHS)
    for length, found in zip(lengths, search(tiny(2), source, lengths), strict=True):
        for each in found:
            assert each.alignment is not None and not each.alignment.is_inference()
            assert each.alignment.shape == (len(each.tokens), length)
            torch.testing.assert_close(
                each.alignment.sum(-1), torch.ones(len(each.tokens)).double()
            )


@every_search
def test_a_batch_is_its_sentences_one_by_one(search: Search) -> None:
    model, (source, lengths) = tiny(3), sources(LENGTHS)
    together = search(model, source, lengths)
    ends = {len(found[0].tokens) for found in together}
    assert len(ends) > 2  # sentences left the batch at different times
    for row, found in enumerate(together):
        length = lengths[row]
        alone = search(model, source[row : row + 1, :length], [length])[0]
        assert len(alone) == len(found)
        for left, right in zip(found, alone, strict=True):
            same(left, right)


@every_search
def test_a_sentence_that_waits_to_leave_is_done(search: Search) -> None:
    """Among many, an ended sentence stays for a while; what its lanes write then is no result."""
    model, (source, lengths) = tiny(), sources([3, 5, 2, 4] * 8)
    for row, found in enumerate(search(model, source, lengths)):
        alone = search(model, source[row : row + 1, : lengths[row]], [lengths[row]])[0]
        assert [each.tokens for each in found] == [each.tokens for each in alone]


@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy(seed: int) -> None:
    model, (source, lengths) = tiny(seed), sources(LENGTHS, seed=seed)
    one = beam(model, source, lengths, BeamOptions(beams=1), align=True)
    for left, right in zip(greedily(model, source, lengths), one, strict=True):
        same(left[0], right[0])


@pytest.mark.parametrize("penalty", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("early_stopping", [True, False])
def test_a_beam_as_wide_as_the_tree_is_exhaustive(penalty: float, early_stopping: bool) -> None:
    model, (source, lengths) = tiny(4, vocabulary=6), sources([4, 2, 3], vocabulary=6)
    ordinary = range(3, 6)
    tree = [tokens for size in range(4) for tokens in product(ordinary, repeat=size)]
    options = BeamOptions(len(tree), len(tree), penalty, early_stopping)
    found = beam(model, source, lengths, options, max_length=3)
    for row, each in enumerate(found):
        scored = []
        for tokens in tree:
            one = Hypothesis(tokens, 0.0, ())
            total = float(judge(model, source[row, : lengths[row]], one)[0].sum())
            scored.append((total / (len(tokens) + 1) ** penalty, tokens))
        scored.sort(reverse=True)
        assert [h.tokens for h in each] == [tokens for _, tokens in scored]
        assert [h.score for h in each] == pytest.approx([score for score, _ in scored])


@pytest.mark.parametrize("seed", range(4))
def test_going_on_finds_what_is_at_least_as_good(seed: int) -> None:
    model, (source, lengths) = tiny(seed), sources(LENGTHS, seed=seed)
    early = beam(model, source, lengths, BeamOptions(beams=3))
    late = beam(model, source, lengths, BeamOptions(beams=3, early_stopping=False))
    assert all(b[0].score >= a[0].score - 1e-12 for a, b in zip(early, late, strict=True))


def test_the_n_best_are_sorted_and_distinct() -> None:
    model, (source, lengths) = tiny(5), sources(LENGTHS)
    for found in beam(model, source, lengths, BeamOptions(beams=5, nbest=5)):
        assert len(found) == 5
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({h.tokens for h in found}) == 5


def test_the_penalty_divides_by_a_power_of_the_length() -> None:
    model, (source, lengths) = tiny(6), sources(LENGTHS)
    for found in beam(model, source, lengths, BeamOptions(beams=3, nbest=3, length_penalty=0.5)):
        for each in found:
            want = sum(each.token_scores) / (len(each.tokens) + 1) ** 0.5
            assert each.score == pytest.approx(want)


def test_the_best_of_more_beams_is_a_different_path() -> None:
    """Beams were moved: where they were, following the greedy lane would give other rows."""
    model, (source, lengths) = tiny(7), sources(LENGTHS)
    best = beam(model, source, lengths, BeamOptions(beams=4))
    greedy_tokens = [each.tokens for each in greedy(model, source, lengths)]
    assert [found[0].tokens for found in best] != greedy_tokens


@every_search
def test_nothing_in_nothing_out(search: Search) -> None:
    source, _ = sources([])
    assert search(tiny(), source, []) == []


def test_asking_for_alignment_changes_nothing_else() -> None:
    model, (source, lengths) = tiny(8), sources(LENGTHS)
    plain = beam(model, source, lengths)
    for left, right in zip(plain, beam(model, source, lengths, align=True), strict=True):
        assert left[0].alignment is None
        assert left[0].token_scores == right[0].token_scores


def test_a_source_may_be_empty() -> None:
    source, _ = sources([3, 2])
    found = beam(tiny(), source, [0, 2], align=True)[0][0]
    assert found.alignment is not None and found.alignment.shape == (len(found.tokens), 0)


def test_a_model_that_would_drop_out_is_refused() -> None:
    source, lengths = sources([3])
    with pytest.raises(ContractError, match="evaluation mode"):
        greedy(tiny().train(), source, lengths)


def test_a_broken_model_is_not_believed() -> None:
    model, (source, lengths) = tiny(), sources([3])
    with torch.no_grad():
        model.embedding.tokens.weight[4] = torch.nan
    for search in SEARCHES.values():
        with pytest.raises(ContractError, match="NaN"):
            search(model, source, lengths)


@pytest.mark.parametrize("lengths", [[3], [3, 9], [3, -1], [1.0, 2.0]])
def test_lengths_that_do_not_fit_are_refused(lengths: list[int]) -> None:
    source, _ = sources([4, 3])
    with pytest.raises(ContractError, match="lengths"):
        greedy(tiny(), source, lengths)


def test_a_source_of_another_rank_is_refused() -> None:
    with pytest.raises(ContractError, match="source"):
        greedy(tiny(), torch.tensor([3, 4]), [2])


@pytest.mark.parametrize(
    "bad",
    [
        {"beams": 0}, {"beams": 2.0}, {"beams": True}, {"beams": 2, "nbest": 3}, {"nbest": 0},
        {"length_penalty": -0.1}, {"length_penalty": float("nan")},
        {"length_penalty": float("inf")}, {"length_penalty": "1"},
    ],
)  # fmt: skip
def test_beams_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ContractError, match="|".join(bad)):
        BeamOptions(**bad)  # type: ignore[arg-type]
