"""A small set of sentence pairs with word links, written for this package and shipped with it.

`bundled/pairs.tsv`, UTF-8, one pair a line, tab-separated: English, French, the links between their
words as `English-French` positions from 0 in `word_split`, and, where an adjective and its noun
swap places, the links of the adjective and of the noun. None of the twenty English sentences with
such a pair, nor their translations, stand in the pairs that the bundled model was trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crossattention.translate.forced import Sentence, forced_links
from crossattention.translate.translator import BUNDLED, Translator

PAIRS = BUNDLED / "pairs.tsv"
Link = tuple[int, int]


@dataclass(frozen=True)
class LinkedPair:
    """A sentence pair whose words are linked.

    Attributes:
        english, french: the sentences.
        links: (English word, French word), from 0.
        swapped: the links of an adjective and of its noun, in opposite order; empty without one.

    >>> shipped_pairs()[0].swapped
    ((1, 2), (2, 1))
    """

    english: str
    french: str
    links: tuple[Link, ...]
    swapped: tuple[Link, ...]


def shipped_pairs(path: Path = PAIRS) -> list[LinkedPair]:
    """Read the shipped pairs.

    >>> shipped_pairs()[0].french
    'Le chat noir dort.'
    """
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        english, french, links, swapped = f"{line}\t".split("\t")[:4]
        found.append(LinkedPair(english, french, _links(links), _links(swapped)))
    return found


def swapped_right(translator: Translator, pairs: Sequence[LinkedPair]) -> tuple[int, int]:
    """Count the pairs in which adjective and noun both read their own English word.

    Args:
        translator: whose alignment head is looked at, on the known French sentences.
        pairs: those without an adjective and noun that swap are left out.
    Returns:
        How many are right, of how many.
    """
    asked = [pair for pair in pairs if pair.swapped]
    sources = [Sentence.of(pair.english, translator.tokenizer) for pair in asked]
    targets = [Sentence.of(pair.french, translator.tokenizer) for pair in asked]
    found = forced_links(translator, sources, targets)
    right = [
        all(links[french] == english for english, french in pair.swapped)
        for pair, links in zip(asked, found, strict=True)
    ]
    return sum(right), len(asked)


def _links(text: str) -> tuple[Link, ...]:
    ends = [link.split("-") for link in text.split()]
    return tuple((int(english), int(french)) for english, french in ends)
