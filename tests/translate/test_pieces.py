from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossattention.errors import ContractError
from crossattention.translate.pieces import cut


def words(text: str) -> int:
    return len(text.split())


def test_a_line_that_fits_stays_whole() -> None:
    assert cut("  One. Two. Three.  ", words, 3) == ["One. Two. Three."]
    assert cut(" \t ", words, 3) == []


def test_sentence_ends_come_first() -> None:
    line = 'Mr. Black met J. Smith. "Hello!" he said. It was 3.5 p.m. there... Did he?'
    assert cut(line, words, 8) == [
        "Mr. Black met J. Smith.",
        '"Hello!" he said.',
        "It was 3.5 p.m. there...",
        "Did he?",
    ]


def test_then_clauses_then_words_then_characters() -> None:
    assert cut("one two, three four five six seven", words, 3) == [
        "one two,",
        "three four five",
        "six seven",
    ]
    assert cut("a" * 11, len, 4) == ["aaaa", "aaaa", "aaa"]


def test_a_character_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ContractError, match="`limit` must be at least one character long"):
        cut("éé", lambda text: len(text.encode()), 1)


@given(st.text(alphabet="ab A.,;!?\n é", max_size=60), st.integers(2, 9))
def test_pieces_fit_and_lose_nothing_but_white_space(line: str, limit: int) -> None:
    def size(text: str) -> int:
        return len(text.encode())

    pieces = cut(line, size, limit)
    assert all(piece == piece.strip() and 0 < size(piece) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(line.split())


def test_a_very_long_line_is_cut_in_time() -> None:
    pieces = cut("word " * 20_000, words, 32)
    assert len(pieces) == 20_000 // 32 and pieces[0].split() == ["word"] * 32
