"""Judge word links against links marked by people: the alignment error rate.

    AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|),   sure links S ⊆ possible links P

Paper: Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", section 5.
The files are those of the Hansards test of Mihalcea & Pedersen 2003: `PREFIX.e` and `PREFIX.f` hold
one sentence a line, words separated by spaces; `PREFIX.wa.nonullalign` one link a line: sentence,
English word and French word from 1, and S or P.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crossattention.errors import ContractError, complaint
from crossattention.translate.forced import Sentence, forced_links
from crossattention.translate.translator import Translator

Links = frozenset[tuple[int, int]]
SUFFIXES = (".e", ".f", ".wa.nonullalign")


@dataclass(frozen=True)
class MarkedPair:
    """A sentence pair and its links, (English word, French word) from 0; sure ones are possible."""

    english: list[str]
    french: list[str]
    sure: Links
    possible: Links


def error_rate(found: Iterable[Links], marked: Iterable[MarkedPair]) -> float:
    """Compute the alignment error rate of the links found in all pairs together, 0 to 1.

    >>> pair = MarkedPair(["a", "b"], ["x", "y"], frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
    >>> error_rate([frozenset({(0, 0), (1, 0)})], [pair])
    0.33333333333333337
    """
    hits, total = 0, 0
    for links, pair in zip(found, marked, strict=True):
        hits += len(links & pair.sure) + len(links & pair.possible)
        total += len(links) + len(pair.sure)
    return 1 - hits / total if total else 0.0


def score_links(translator: Translator, marked: Sequence[MarkedPair]) -> float:
    """Compute the error rate of a model's alignment, read off the known French sentences."""
    sources = [Sentence.of_words(pair.english, translator.tokenizer) for pair in marked]
    targets = [Sentence.of_words(pair.french, translator.tokenizer) for pair in marked]
    read = forced_links(translator, sources, targets)
    found = [
        frozenset((english, french) for french, english in enumerate(each) if english is not None)
        for each in read
    ]
    return error_rate(found, marked)


def read_marked(prefix: str | os.PathLike[str]) -> list[MarkedPair]:
    """Read the three files of a marked set.

    Args:
        prefix: their path without `.e`, `.f` and `.wa.nonullalign`.
    Raises:
        ContractError: a file is missing or not UTF-8, the two sides differ in length, or a link
            names a word that is not there.
    """
    english, french, links = (_lines(Path(f"{os.fspath(prefix)}{end}")) for end in SUFFIXES)
    if len(english) != len(french):
        given = f"{len(english)} and {len(french)} lines in {os.fspath(prefix)}.e and .f"
        raise ContractError(complaint("links", "two sides of equal length", given, "check them"))
    sides = [(e.split(), f.split()) for e, f in zip(english, french, strict=True)]
    sure: list[set[tuple[int, int]]] = [set() for _ in sides]
    possible: list[set[tuple[int, int]]] = [set() for _ in sides]
    for number, line in enumerate(links, 1):
        at, link, mark = _link(line, number, sides)
        possible[at].add(link)
        if mark == "S":
            sure[at].add(link)
    return [
        MarkedPair(e, f, frozenset(s), frozenset(p))
        for (e, f), s, p in zip(sides, sure, possible, strict=True)
        if e and f
    ]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8: {error}"
        given = f"{os.fspath(path)!r} ({reason})"
        do = f"name the path without {', '.join(SUFFIXES)}"
        raise ContractError(complaint("links", "readable files", given, do)) from error


def _link(
    line: str, number: int, sides: Sequence[tuple[list[str], list[str]]]
) -> tuple[int, tuple[int, int], str]:
    try:
        sentence, english, french, mark = line.split()
        at, link = int(sentence) - 1, (int(english) - 1, int(french) - 1)
    except ValueError:
        at, link, mark = -1, (-1, -1), ""
    known = 0 <= at < len(sides) and mark in ("S", "P")
    if not known or not all(0 <= a < len(b) for a, b in zip(link, sides[at], strict=True)):
        want = "`sentence English French S|P` lines, counted from 1"
        given = f"{line!r} in line {number}"
        raise ContractError(complaint("links", want, given, "see that the files belong together"))
    return at, link, mark
