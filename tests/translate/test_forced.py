from __future__ import annotations

import pytest
import torch

from crossattention.translate.forced import Sentence, forced_links
from crossattention.translate.tokenizer import BEGIN, END
from tiny import tiny_translator

PAIRS = [("The black cat", "Le chat noir dort."), ("a", "une voiture"), ("a red car.", "rouge")]


def test_links_are_those_of_each_pair_alone() -> None:
    translator = tiny_translator()
    sources = [Sentence.of(english, translator.tokenizer) for english, _ in PAIRS]
    targets = [Sentence.of(french, translator.tokenizer) for _, french in PAIRS]
    together = forced_links(translator, sources, targets)
    for source, target, links in zip(sources, targets, together, strict=True):
        assert forced_links(translator, [source], [target]) == [links]
        tokens = torch.tensor([[*source.tokens, END]])
        memory = translator.model.encode(tokens, [tokens.shape[1]])
        begun = torch.tensor([[BEGIN, *target.tokens]])
        weights = translator.model.decode_aligned(begun, memory)[1][0, 1:].detach()
        assert len(links) == len(target.words)
        for (_, positions), link in zip(target.words, links, strict=True):
            row = weights[positions].mean(0)
            each = [float(row[at].sum()) for _, at in source.words] + [float(row[-1])]
            best = each.index(max(each))
            assert link == (None if best == len(source.words) else best)


@pytest.mark.parametrize("words", [["oh", ",", "oh", "!"], ["l'", "aujourd'", "hui", "C-19"]])
def test_given_words_are_kept_as_they_are(words: list[str]) -> None:
    tokenizer = tiny_translator().tokenizer
    sentence = Sentence.of_words(words, tokenizer)
    assert [word for word, _ in sentence.words] == words
    assert [at for _, positions in sentence.words for at in positions] == list(
        range(len(sentence.tokens))
    )
    for word, positions in sentence.words:
        assert tokenizer.decode([sentence.tokens[at] for at in positions]).strip() == word
    assert tokenizer.decode(sentence.tokens) == " ".join(words)
