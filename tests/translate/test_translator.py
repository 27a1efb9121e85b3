from __future__ import annotations

from pathlib import Path

import pytest

from crossattention.errors import ContractError
from crossattention.translate.tokenizer import Tokenizer, word_split
from crossattention.translate.translator import Translator
from tiny import save_tiny, tiny_translator

LINES = ["The black cat is sleeping.", "", "a red car", "  ", "The cat", "a red car"]


def test_order_is_kept_and_empty_lines_stay_empty() -> None:
    translator = tiny_translator()
    together = translator.translate(LINES, beams=2, batch=13)
    alone = [translator.translate([line], beams=2)[0] for line in LINES]
    assert [each.source for each in together] == LINES
    assert [each.text for each in together] == [each.text for each in alone]
    assert together[1].text == "" and together[3].text == "" and together[2].text != ""
    for one, other in zip(together, alone, strict=True):
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-5)
        for row, same in zip(one.alignment, other.alignment, strict=True):
            assert row == pytest.approx(same, abs=1e-5)


def test_words_and_rows_agree() -> None:
    found = tiny_translator().translate(["The black cat is sleeping."])[0]
    assert found.source_words == tuple(word_split("The black cat is sleeping."))
    assert len(found.tokens) == len(found.token_scores) > 0
    assert len(found.alignment) == len(found.words)
    for row in found.alignment:
        assert len(row) == 7 and sum(row) == pytest.approx(1, abs=1e-5)


def test_n_best_are_ordered_and_distinct() -> None:
    found = tiny_translator().translate(["The cat"], beams=5, nbest=3)[0]
    scores = [found.score, *(other.score for other in found.others)]
    assert len(found.others) == 2 and scores == sorted(scores, reverse=True)
    assert len({found.tokens, *(other.tokens for other in found.others)}) == 3


def test_a_long_line_is_translated_in_pieces() -> None:
    translator = tiny_translator(max_length=24)
    sentences = ["The black cat is sleeping.", "A red car sleeps in the black cat."]
    size = [translator._size(sentence) for sentence in sentences]
    assert max(size) <= translator.longest < sum(size) - 1
    whole, *parts = translator.translate([" ".join(sentences), *sentences], beams=1)
    assert whole.text == " ".join(part.text for part in parts if part.text)
    assert whole.source_words == parts[0].source_words + parts[1].source_words
    left = len(parts[0].source_words)
    for row in whole.alignment[: len(parts[0].words)]:
        assert set(row[left:-1]) == {0.0}
    for row, own in zip(whole.alignment[len(parts[0].words) :], parts[1].alignment, strict=True):
        assert set(row[:left]) == {0.0}
        assert row[left:] == pytest.approx(own, abs=1e-5)


def test_saved_and_loaded_translate_alike(tmp_path: Path) -> None:
    loaded = Translator.load(save_tiny(tmp_path, "ab" * 32))
    assert loaded.checksum == "ab" * 32
    assert loaded.translate(["The cat"])[0].text == tiny_translator().translate(["The cat"])[0].text


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="without config.json, model.safetensors"):
        Translator.load(tmp_path)
    save_tiny(tmp_path)
    (tmp_path / "training.json").write_text("[]")
    with pytest.raises(ContractError, match="training.json"):
        Translator.load(tmp_path)


def test_a_foreign_tokenizer_is_refused() -> None:
    with pytest.raises(ContractError, match="`tokenizer` must be the model's own"):
        Translator(tiny_translator().model, Tokenizer.train(["a"], vocabulary=262))


@pytest.mark.parametrize(("beams", "nbest"), [(0, 1), (2, 3), (2, 0)])
def test_numbers_that_make_no_search_are_refused(beams: int, nbest: int) -> None:
    with pytest.raises(ContractError):
        tiny_translator().translate(["a"], beams=beams, nbest=nbest)
