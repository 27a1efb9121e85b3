from __future__ import annotations

import pytest

from crossattention.translate import shipped
from crossattention.translate.data import read_pairs
from crossattention.translate.shipped import PAIRS, LinkedPair, shipped_pairs, swapped_right
from crossattention.translate.tokenizer import word_split
from tiny import tiny_translator


def test_there_are_forty_pairs_and_twenty_swaps() -> None:
    pairs = shipped_pairs()
    assert len(pairs) >= 40 and len({pair.english for pair in pairs}) == len(pairs)
    assert sum(bool(pair.swapped) for pair in pairs) == 20
    assert read_pairs(PAIRS).bad == []


@pytest.mark.parametrize("pair", shipped_pairs(), ids=lambda pair: pair.english)
def test_links_name_words(pair: LinkedPair) -> None:
    english, french = word_split(pair.english), word_split(pair.french)
    assert pair.links and len(set(pair.links)) == len(pair.links)
    for left, right in pair.links:
        assert left < len(english) and right < len(french)
    assert set(pair.swapped) <= set(pair.links)


@pytest.mark.parametrize(
    "pair", [pair for pair in shipped_pairs() if pair.swapped], ids=lambda pair: pair.english
)
def test_adjective_and_noun_swap(pair: LinkedPair) -> None:
    (adjective, adjectif), (noun, nom) = pair.swapped
    assert adjective + 1 == noun and nom < adjectif


def test_a_pair_is_right_when_both_words_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [
        LinkedPair("black cat", "chat noir", ((0, 1), (1, 0)), ((0, 1), (1, 0))),
        LinkedPair("red car", "voiture rouge", ((0, 1), (1, 0)), ((0, 1), (1, 0))),
        LinkedPair("a", "une", ((0, 0),), ()),
    ]
    monkeypatch.setattr(shipped, "forced_links", lambda *_: [[1, 0], [1, 1]])
    assert swapped_right(tiny_translator(), pairs) == (1, 2)


def test_a_model_is_asked() -> None:
    right, asked = swapped_right(tiny_translator(), shipped_pairs())
    assert 0 <= right <= asked == 20
