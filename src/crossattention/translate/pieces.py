"""Cut a line that is too long for the model into pieces that are not.

A line of at most `limit` tokens stays whole. A longer one is cut at every sentence end; a sentence
that is still too long is cut after the last `,` `;` `:` or dash that leaves a piece that fits, else
at the last white space, else between two characters. Only white space at cuts is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from crossattention.errors import ContractError, complaint

# Sentence ends are looked for by hand around these marks: not every full stop is one.
_SENTENCE = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+")
_ABBREVIATION = re.compile(r"(?:^|[\s(\"'“])(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Mt|vs|etc|[A-Z])\.$")
_PLACES = (
    re.compile(r"(?<=[,;:–—])\s+"),
    re.compile(r"\s+"),
    re.compile(r"(?<=.)(?=.)", re.DOTALL),
)
# A piece holds at most this many characters a token, so that a cut never looks at a whole book.
_REACH = 16


def cut(line: str, size: Callable[[str], int], limit: int) -> list[str]:
    """Cut a line into pieces of at most `limit` tokens.

    Args:
        line: any text.
        size: counts the tokens of a text.
        limit: at least 1.
    Returns:
        The pieces in order, without white space around them; none for an empty line.
    Raises:
        ContractError: one character alone has more tokens than `limit`.

    >>> cut("Dr. No came. He left, and we stayed.", lambda text: len(text.split()), 3)
    ['Dr. No came.', 'He left,', 'and we stayed.']
    """
    line = line.strip()
    if not line:
        return []
    if size(line) <= limit:
        return [line]
    return [piece for sentence in _sentences(line) for piece in _fitting(sentence, size, limit)]


def _sentences(line: str) -> Iterator[str]:
    start = 0
    for mark in _SENTENCE.finditer(line):
        before, after = line[start : mark.end()].rstrip(), line[mark.end() : mark.end() + 1]
        if not after.islower() and not _ABBREVIATION.search(before):
            yield before
            start = mark.end()
    if line[start:]:
        yield line[start:]


def _fitting(sentence: str, size: Callable[[str], int], limit: int) -> Iterator[str]:
    while size(sentence) > limit:
        window = sentence[: limit * _REACH]
        at = next((found for place in _PLACES if (found := _last(window, place, size, limit))), 0)
        if not at:
            given = f"{sentence[0]!r}, which has {size(sentence[0])} tokens"
            do = "use a model with a larger `max_length`"
            raise ContractError(complaint("limit", "at least one character long", given, do))
        yield sentence[:at].rstrip()
        sentence = sentence[at:].lstrip()
    if sentence:
        yield sentence


def _last(text: str, place: re.Pattern[str], size: Callable[[str], int], limit: int) -> int:
    """Find the last place where cutting leaves at most `limit` tokens before it; 0 if none does."""
    ends = [found.end() for found in place.finditer(text) if text[: found.start()].strip()]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if size(text[: ends[middle]].rstrip()) <= limit:
            low = middle + 1
        else:
            high = middle
    return ends[low - 1] if low else 0
