from __future__ import annotations

import pytest

from crossattention.errors import ContractError
from crossattention.translate.data import Pairs
from crossattention.translate.evaluate import evaluate, judged_pairs
from crossattention.translate.split import split_pairs
from crossattention.translate.translator import Translator
from tiny import tiny_translator


def pairs(checksum: str) -> Pairs:
    english = [f"sentence {number // 2}" for number in range(600)]
    french = [f"phrase {number}" for number in range(600)]
    return Pairs(english, french, [], checksum)


def test_the_training_file_is_judged_on_what_was_held_out() -> None:
    translator = tiny_translator()
    translator.checksum = "c0"
    held = split_pairs(pairs("c0").tuples()).held_out
    judged = judged_pairs(translator, pairs("c0"))
    assert [source for source, _ in judged] == list(dict.fromkeys(e for e, _ in held))
    assert 0 < len(judged) < 30
    assert len(judged_pairs(translator, pairs("another"))) == 300


def test_a_file_is_not_the_training_file_of_a_model_that_names_none() -> None:
    judged = judged_pairs(tiny_translator(), pairs("c0"))
    assert len(judged) == 300 and judged[0] == ("sentence 0", ["phrase 0", "phrase 1"])


def test_perfect_translations_score_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = tiny_translator()
    sources = ["The black cat is sleeping.", "a red car", "The cat"]
    given = [each.text for each in translator.translate(sources, beams=1)]
    texts = ["un chat noir dort ici .", "une voiture rouge , là", "le chat dort bien ."]
    kept = Translator.translate

    def fixed(self: Translator, lines: list[str], *, beams: int) -> list[object]:
        found = kept(self, lines, beams=beams)
        assert [each.text for each in found] == given
        return [type(each)(each.source, text, 0.0) for each, text in zip(found, texts, strict=True)]

    monkeypatch.setattr(Translator, "translate", fixed)
    judged = [(s, ["autre chose que cela", t]) for s, t in zip(sources, texts, strict=True)]
    judged[1] = (sources[1], [texts[1]])
    seen: list[int] = []
    scores = evaluate(translator, judged, beams=1, progress=seen.append)
    assert scores.bleu == pytest.approx(100) and scores.chrf == pytest.approx(100)
    assert scores.bleu_single < 70
    assert scores.sentences == 3 and seen == [3] and scores.sentences_per_second > 0
    assert "BLEU|nrefs:var|" in scores.signature and "chrF2|nrefs:var|" in scores.signature


def test_nothing_to_judge_is_refused() -> None:
    with pytest.raises(ContractError, match="sentences to judge on"):
        evaluate(tiny_translator(), [])
