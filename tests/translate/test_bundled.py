"""The bundled model: these fail, and do not skip, where it is missing."""

from __future__ import annotations

import json

import pytest

from crossattention.translate.shipped import shipped_pairs, swapped_right
from crossattention.translate.translator import BUNDLED, FILES, Translator

MEGABYTES = 16


@pytest.fixture(scope="module")
def bundled() -> Translator:
    missing = [
        name for name in (*FILES, "training.json", "card.md") if not (BUNDLED / name).is_file()
    ]
    assert missing == [], f"the bundled model lacks {missing}"
    return Translator.load()


def test_it_is_small_and_says_where_it_comes_from(bundled: Translator) -> None:
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) <= MEGABYTES * 1_000_000
    record = json.loads((BUNDLED / "training.json").read_text(encoding="utf-8"))
    card = (BUNDLED / "card.md").read_text(encoding="utf-8")
    assert bundled.checksum == record["checksum"]
    assert record["checksum"] in card
    assert "Tatoeba" in card and "CC BY 2.0 FR" in card and "crossattention train" in card


def test_the_black_cat_sleeps(bundled: Translator) -> None:
    found = bundled.translate(["The black cat is sleeping."])[0]
    assert found.text in ("Le chat noir dort.", "Le chat noir est en train de dormir.")
    links = dict(zip(found.words, found.strongest(), strict=True))
    assert (links["chat"], links["noir"]) == (2, 1)


def test_adjectives_and_nouns_read_their_own(bundled: Translator) -> None:
    right, asked = swapped_right(bundled, shipped_pairs())
    assert asked == 20 and right >= 17


def test_beams_are_no_worse_than_greedy(bundled: Translator) -> None:
    sentences = [pair.english for pair in shipped_pairs()]
    greedy = bundled.translate(sentences, beams=1)
    beams = bundled.translate(sentences, beams=4)
    assert sum(b.score for b in beams) >= sum(g.score for g in greedy) - 1e-4
