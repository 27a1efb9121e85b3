"""Sentence pairs as numbers: token ids of both sides, the word of each token, and word links.

Everything a batch needs, prepared once and kept flat, so that collating is slicing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crossattention.errors import ContractError
from crossattention.translate.links import Links
from crossattention.translate.tokenizer import Tokenizer

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Side:
    """Sentences of one language: `ids` and `words` (the word index of each token) from `starts[i]`
    on."""

    starts: npt.NDArray[np.int64]
    ids: Ids
    words: Ids

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Count the tokens of each sentence."""
        return np.diff(self.starts)

    def tokens(self, at: int) -> tuple[Ids, Ids]:
        """Return one sentence's token ids and their word indices."""
        part = slice(self.starts[at], self.starts[at + 1])
        return self.ids[part], self.words[part]


@dataclass(frozen=True)
class Corpus:
    """Both sides of all pairs; `links` is None where no head learns to align."""

    source: Side
    target: Side
    links: Links | None

    def __len__(self) -> int:
        return len(self.source.starts) - 1


def encode_corpus(
    pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, links: Links | None = None
) -> Corpus:
    """Encode pairs for training.

    Args:
        pairs: (English, French) sentences.
        tokenizer: the model's tokenizer.
        links: word links of the same pairs, in the same order.

    Returns:
        The corpus.

    Raises:
        ContractError: `links` belongs to another number of pairs.
    """
    if links is not None and len(links) != len(pairs):
        raise ContractError(
            f"`links` must hold one entry a pair, got {len(links)} for {len(pairs)} pairs; "
            "estimate them from these pairs."
        )
    source = _side([english for english, _ in pairs], tokenizer)
    target = _side([french for _, french in pairs], tokenizer)
    return Corpus(source, target, links)


def _side(texts: list[str], tokenizer: Tokenizer) -> Side:
    encoded = tokenizer.encode_words(texts)
    lengths = [len(ids) for ids, _ in encoded]
    ids = np.fromiter((i for ids, _ in encoded for i in ids), dtype=np.int32)
    words = np.fromiter((w for _, words in encoded for w in words), dtype=np.int32)
    return Side(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), ids, words)
