import random

import numpy as np
import pytest

from crossattention.errors import ContractError
from crossattention.translate.grow import grow_diagonal
from crossattention.translate.links import Links, split_words, word_links


def _planted() -> tuple[list[list[str]], list[list[str]], list[list[tuple[int, int]]]]:
    """Word k translates to word k; each sentence swaps two neighbours."""
    chance = random.Random(7)
    english, french, truth = [], [], []
    for _ in range(400):
        words = chance.sample(range(40), chance.randrange(2, 7))
        order = list(range(len(words)))
        at = chance.randrange(len(words) - 1)
        order[at], order[at + 1] = order[at + 1], order[at]
        english.append([f"e{k}" for k in words])
        french.append([f"f{words[k]}" for k in order])
        truth.append([(k, row) for row, k in enumerate(order)])
    return english, french, truth


def test_planted_links_are_found() -> None:
    english, french, truth = _planted()
    parts: list[float] = []
    links = word_links(english, french, progress=parts.append)
    right = sum(len(set(links.of(k)) & set(truth[k])) for k in range(len(truth)))
    assert right >= 0.97 * sum(map(len, truth))
    assert len(links.source) <= 1.03 * right
    assert parts == sorted(parts) and parts[-1] == 1.0


def test_empty_sides_and_mismatch() -> None:
    links = word_links([[], ["a"], ["b"]], [["x"], ["y"], []])
    assert [len(links.of(k)) for k in range(3)] == [0, 1, 0]
    assert len(word_links([[]], [[]])) == 1
    with pytest.raises(ContractError, match="`french`"):
        word_links([["a"]], [])


def test_file_round_trip(tmp_path) -> None:
    links = word_links([["a", "b"], ["a"]], [["x", "y"], ["x"]])
    links.save(tmp_path / "links.npz")
    again = Links.load(tmp_path / "links.npz")
    assert [again.of(k) for k in range(2)] == [links.of(k) for k in range(2)]


def test_growing_stays_between_intersection_and_union() -> None:
    chance = np.random.default_rng(2)
    ahead, back = chance.random((23, 5, 7)) < 0.3, chance.random((23, 5, 7)) < 0.3
    for final in (False, True):
        grown = grow_diagonal(ahead, back, final)
        assert ((ahead & back) <= grown).all() and (grown <= (ahead | back)).all()
    union = np.array([[[1, 1, 0], [0, 0, 0], [0, 0, 1]]], dtype=bool)
    both = np.array([[[1, 0, 0], [0, 0, 0], [0, 0, 0]]], dtype=bool)
    assert grow_diagonal(union, both).astype(int).tolist() == [[[1, 1, 0], [0, 0, 0], [0, 0, 0]]]
    assert grow_diagonal(union, both, final=True).sum() == 3


def test_words_are_lower_case() -> None:
    assert split_words(["L'Homme DORT."]) == [["l'", "homme", "dort", "."]]
