"""Judge a model by its translations of held-out sentences: BLEU against all references.

A sentence often has several right translations; each distinct source is translated once and
compared with all of them (Papineni et al. 2002; sacrebleu, Post 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crossattention.seq2seq import EncoderDecoder
from crossattention.seq2seq.search import greedy
from crossattention.translate.padding import by_length, padded
from crossattention.translate.tokenizer import END, Tokenizer

TranslateFn = Callable[[EncoderDecoder, Tokenizer, Sequence[str]], list[str]]


def bleu_of(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Score translations against all references of each sentence, 0 to 100.

    >>> round(bleu_of(["le chat noir dort ."], [["le chien", "le chat noir dort ."]]))
    100
    """
    from sacrebleu.metrics.bleu import BLEU

    streams = reference_streams(references)
    return float(BLEU().corpus_score(list(translations), streams).score)


def reference_streams(references: Sequence[Sequence[str]]) -> list[Any]:
    """Turn each sentence's references into sacrebleu's streams: the first of all, the second, ….

    >>> reference_streams([["un chat", "le chat"], ["un chien"]])
    [['un chat', 'un chien'], ['le chat', None]]
    """
    most = max(len(each) for each in references)
    # Each stream holds one reference a sentence; None marks a sentence that has fewer.
    return [[known[at] if at < len(known) else None for known in references] for at in range(most)]


def translate_greedily(
    model: EncoderDecoder, tokenizer: Tokenizer, sentences: Sequence[str], budget: int = 4096
) -> list[str]:
    """Translate each sentence by its likeliest next token.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        sentences: source texts, none longer than the model's `max_length` tokens.
        budget: most source tokens at once, padding included.

    Returns:
        Translations in the order of the sentences.
    """
    device = model.embedding.tokens.weight.device
    encoded = [[*tokenizer.encode(text), END] for text in sentences]
    lengths = [len(ids) for ids in encoded]
    found = [""] * len(encoded)
    for part in by_length(lengths, budget):
        source = padded([encoded[at] for at in part], device)
        written = greedy(model, source, [lengths[at] for at in part])
        for at, hypothesis in zip(part, written, strict=True):
            found[at] = tokenizer.decode(hypothesis.tokens)
    return found
