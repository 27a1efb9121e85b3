from __future__ import annotations

import pytest

from crossattention.errors import ContractError
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.translate.candidate import Candidate, join
from crossattention.translate.tokenizer import Tokenizer


def candidate(text: str, score: float) -> Candidate:
    return Candidate(text, score, (text,), (score,), ("s", "t"), (text,), ((0.5, 0.25, 0.25),))


def test_joined_pieces_read_their_own_words() -> None:
    found = join("s t s t", [[candidate("x", -1.0)], [candidate("y", -3.0)]], 1)
    assert found.text == "x y" and found.score == -2.0
    assert found.source_words == ("s", "t", "s", "t") and found.words == ("x", "y")
    assert found.alignment == ((0.5, 0.25, 0, 0, 0.25), (0, 0, 0.5, 0.25, 0.25))


def test_the_best_combinations_come_first() -> None:
    first = [candidate("a", -1.0), candidate("b", -1.5)]
    second = [candidate("c", -2.0), candidate("d", -2.25), candidate("e", -9.0)]
    found = join("line", [first, second], 3)
    assert [found.text, *(other.text for other in found.others)] == ["a c", "a d", "b c"]
    scores = [found.score, *(other.score for other in found.others)]
    assert scores == sorted(scores, reverse=True)


def test_nothing_gives_nothing() -> None:
    found = join("  ", [], 3)
    assert (found.source, found.text, found.words, found.others) == ("  ", "", (), ())


def test_an_alignment_is_asked_for() -> None:
    tokenizer = Tokenizer.train(["a"], vocabulary=260)
    with pytest.raises(ContractError, match="align=True"):
        Candidate.of(Hypothesis((5,), -1.0, (-1.0, -1.0)), [5, 2], tokenizer)
