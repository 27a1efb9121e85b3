"""Limits and prefixes are kept, sentence by sentence, and hide tokens without changing scores."""

from __future__ import annotations

import pytest
import torch

from crossattention import ContractError
from crossattention.seq2seq import BeamOptions, Config, SampleOptions, beam, greedy, sample
from seq2seq.models import judge, sources, tiny

LENGTHS = [5, 1, 3, 4]
PREFIX = [[4, 4, 6, 5], [], [3], [5, 3]]


@pytest.mark.parametrize("limit", [0, 1, 2, 31])
def test_no_target_is_longer_than_the_limit(limit: int) -> None:
    model, (source, lengths) = tiny(vocabulary=11), sources(LENGTHS, vocabulary=11)
    options = BeamOptions(beams=3, nbest=3, length_penalty=2.0, early_stopping=False)
    found = [
        *beam(model, source, lengths, options, max_length=limit),
        *sample(model, source, lengths, SampleOptions(samples=2), max_length=limit),
        *([each] for each in greedy(model, source, lengths, max_length=limit)),
    ]
    sizes = {len(each.tokens) for lanes in found for each in lanes}
    assert max(sizes) == limit
    assert all(len(h.token_scores) == len(h.tokens) + 1 for lanes in found for h in lanes)


def test_without_room_there_is_one_target() -> None:
    model, (source, lengths) = tiny(), sources(LENGTHS)
    found = beam(model, source, lengths, BeamOptions(beams=3, nbest=3), max_length=0)
    assert [[each.tokens for each in lanes] for lanes in found] == [[()]] * 4


def test_the_usual_limit_follows_each_source() -> None:
    model, (source, lengths) = tiny(vocabulary=11), sources(LENGTHS, vocabulary=11)
    options = BeamOptions(beams=2, nbest=1, length_penalty=9.0, early_stopping=False)
    found = beam(model, source, lengths, options)
    assert [len(lanes[0].tokens) for lanes in found] == [2 * length + 10 for length in lengths]


def test_a_prefix_is_kept_and_scored_by_the_model() -> None:
    model, (source, lengths) = tiny(1), sources(LENGTHS)
    options = BeamOptions(beams=3, nbest=2)
    found = [
        *beam(model, source, lengths, options, prefix=PREFIX, align=True),
        *sample(model, source, lengths, SampleOptions(samples=2), prefix=PREFIX, align=True),
        *([each] for each in greedy(model, source, lengths, prefix=PREFIX, align=True)),
    ]
    for row, lanes in enumerate(found):
        row %= len(PREFIX)
        for each in lanes:
            assert list(each.tokens[: len(PREFIX[row])]) == PREFIX[row]
            scores, maps = judge(model, source[row, : lengths[row]], each)
            torch.testing.assert_close(torch.tensor(each.token_scores).double(), scores)
            assert each.alignment is not None
            torch.testing.assert_close(each.alignment, maps)


def test_a_prefix_of_one_sentence_does_not_touch_the_others() -> None:
    model, (source, lengths) = tiny(1), sources(LENGTHS)
    free, bound = greedy(model, source, lengths), greedy(model, source, lengths, prefix=PREFIX)
    assert free[1].tokens == bound[1].tokens
    assert free[0].tokens != bound[0].tokens


def test_what_greedy_wrote_is_a_prefix_that_leads_there_again() -> None:
    model, (source, lengths) = tiny(2), sources(LENGTHS)
    free = greedy(model, source, lengths)
    half = [each.tokens[: len(each.tokens) // 2] for each in free]
    again = greedy(model, source, lengths, prefix=half)
    assert [each.tokens for each in again] == [each.tokens for each in free]


def test_a_prefix_may_fill_all_the_room() -> None:
    model, (source, lengths) = tiny(), sources([2])
    assert beam(model, source, lengths, prefix=[[4, 5]], max_length=2)[0][0].tokens == (4, 5)


def test_padding_and_begin_are_never_written() -> None:
    model, (source, lengths) = tiny(3), sources(LENGTHS)
    with torch.no_grad():  # the decoder's last rows now point at `pad`
        model.decoder_norm.bias.copy_(9 * model.embedding.tokens.weight[model.config.pad])
    assert all(min(each.tokens, default=3) > 2 for each in greedy(model, source, lengths))


def test_other_numbers_may_mark_the_ends() -> None:
    torch.manual_seed(0)
    model = tiny()
    shifted = Config(**{**vars(model.config), "pad": 6, "begin": 5, "end": 4})
    model.config = shifted
    source, lengths = sources(LENGTHS)
    for each in greedy(model, source.clamp(max=3), lengths):
        assert set(each.tokens) <= {0, 1, 2, 3}


@pytest.mark.parametrize("limit", [-1, 32, 2.0, True, "9"])
def test_a_limit_that_cannot_be_reached_is_refused(limit: int) -> None:
    source, lengths = sources(LENGTHS)
    with pytest.raises(ContractError, match="max_length"):
        greedy(tiny(), source, lengths, max_length=limit)


@pytest.mark.parametrize("bad", [[[4]], [[4]] * 5, [[2], [], [], []], [[7], [], [], []],
                                 [[], [-1], [], []], [[], [0], [], []], [[4] * 3] * 4])  # fmt: skip
def test_a_prefix_that_cannot_be_written_is_refused(bad: list[list[int]]) -> None:
    source, lengths = sources(LENGTHS)
    with pytest.raises(ContractError, match="prefix"):
        beam(tiny(), source, lengths, prefix=bad, max_length=2)
