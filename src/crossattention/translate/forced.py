"""See what the words of a known translation read: the decoder is fed the target, not its choice.

    link(target word) = argmax over source words and the end of what the word's tokens read

A word that reads the end most has no link. This is what alignments are judged by: the same target
words for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from crossattention.translate.padding import by_length, padded
from crossattention.translate.tokenizer import BEGIN, END, Tokenizer
from crossattention.translate.translation import Grouped, strongest, word_weights
from crossattention.translate.translator import Translator


class Sentence(NamedTuple):
    """A sentence as token numbers, and each of its words with the positions of its tokens."""

    tokens: list[int]
    words: Grouped

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer) -> Sentence:
        """Encode a text, whose words are the tokenizer's.

        >>> tokenizer = Tokenizer.train(["a cat"], vocabulary=262)
        >>> [word for word, _ in Sentence.of("a cat", tokenizer).words]
        ['a', 'cat']
        """
        tokens = tokenizer.encode(text)
        return cls(tokens, tokenizer.words(tokens))

    @classmethod
    def of_words(cls, words: Sequence[str], tokenizer: Tokenizer) -> Sentence:
        """Encode words one by one, a space before each but the first; the words are those given.

        >>> tokenizer = Tokenizer.train(["a cat"], vocabulary=262)
        >>> [word for word, _ in Sentence.of_words(["c-1", "o'c"], tokenizer).words]
        ['c-1', "o'c"]
        """
        tokens: list[int] = []
        grouped = []
        for at, word in enumerate(words):
            found = tokenizer.encode(f" {word}" if at else word)
            grouped.append((word, list(range(len(tokens), len(tokens) + len(found)))))
            tokens += found
        return cls(tokens, grouped)


@torch.inference_mode()
def forced_links(
    translator: Translator,
    sources: Sequence[Sentence],
    targets: Sequence[Sentence],
    batch: int = 2048,
) -> list[list[int | None]]:
    """Link each word of known translations to a source word, or to none.

    Args:
        translator: whose alignment is looked at.
        sources, targets: as many of one as of the other, each with at least one word.
        batch: most target tokens, padding included, that are read at once.
    Returns:
        For each pair, the source word of each target word; None where it read the end most.
    """
    model = translator.model
    device = model.embedding.tokens.weight.device
    links: list[list[int | None]] = [[]] * len(targets)
    longest = [max(len(s.tokens), len(t.tokens)) + 1 for s, t in zip(sources, targets, strict=True)]
    for part in by_length(longest, batch):
        closed = [[*sources[at].tokens, END] for at in part]
        memory = model.encode(padded(closed, device), [len(each) for each in closed])
        begun = padded([[BEGIN, *targets[at].tokens] for at in part], device)
        _, weights = model.decode_aligned(begun, memory)  # [b, 1 + t, s]
        for at, read in zip(part, weights, strict=True):
            own = read[1 : len(targets[at].tokens) + 1, : len(sources[at].tokens) + 1]
            words = word_weights(own, targets[at].words, sources[at].words)
            links[at] = [strongest(row) for row in words.tolist()]
    return links
