"""One way to translate one piece of a line, and how pieces are joined into a line again.

    score(line) = mean of the pieces' scores

The best translations of a line are the best of all combinations of its pieces' translations; a
word reads words of its own piece only, so the alignment of a line is made of blocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crossattention.errors import ContractError, complaint
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.translate.tokenizer import Tokenizer
from crossattention.translate.translation import Rows, Translation, word_weights


@dataclass(frozen=True)
class Candidate:
    """One translation of one piece; the fields are those of `Translation`.

    >>> Candidate("chat", -0.5, ("chat",), (-0.5,), ("cat",), ("chat",), ((0.9, 0.1),)).text
    'chat'
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]
    source_words: tuple[str, ...]
    words: tuple[str, ...]
    alignment: Rows

    @classmethod
    def of(cls, found: Hypothesis, source: Sequence[int], tokenizer: Tokenizer) -> Candidate:
        """Say in words what a search found.

        Args:
            found: with its alignment.
            source: the piece's token numbers, closed by the end token.
            tokenizer: the model's.
        """
        if found.alignment is None:
            do = "search with align=True"
            raise ContractError(complaint("found", "aligned", "no alignment", do))
        read, written = tokenizer.words(source), tokenizer.words(found.tokens)
        weights = word_weights(found.alignment, written, read)
        return cls(
            tokenizer.decode(found.tokens).strip(),
            found.score,
            tuple(tokenizer.decode([token]) for token in found.tokens),
            tuple(found.token_scores[: len(found.tokens)]),
            tuple(word for word, _ in read),
            tuple(word for word, _ in written),
            tuple(tuple(row) for row in weights.tolist()),
        )


def join(line: str, pieces: Sequence[Sequence[Candidate]], nbest: int) -> Translation:
    """Join the candidates of a line's pieces into its best translation, which holds the next best.

    Args:
        line: the line as it was given.
        pieces: the candidates of each piece, best first; none for an empty line.
        nbest: how many translations are kept.

    >>> one = Candidate("a", -1.0, (), (), ("x",), ("a",), ((1.0, 0.0),))
    >>> join("x x", [[one], [one]], 1).alignment
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    """
    if not pieces:
        return Translation(line, "", 0.0)
    combined: list[tuple[Candidate, ...]] = [()]
    for candidates in pieces:
        longer = [(*before, each) for before in combined for each in candidates]
        combined = heapq.nlargest(nbest, longer, key=lambda way: sum(each.score for each in way))
    best, *others = (_joined(line, way) for way in combined)
    return replace(best, others=tuple(others))


def _joined(line: str, way: Sequence[Candidate]) -> Translation:
    total = sum(len(each.source_words) for each in way)
    rows, before = [], 0
    for each in way:
        here = len(each.source_words)
        left, right = (0.0,) * before, (0.0,) * (total - before - here)
        rows += [(*left, *row[:-1], *right, row[-1]) for row in each.alignment]
        before += here
    return Translation(
        line,
        " ".join(each.text for each in way if each.text),
        sum(each.score for each in way) / len(way),
        tuple(token for each in way for token in each.tokens),
        tuple(score for each in way for score in each.token_scores),
        tuple(word for each in way for word in each.source_words),
        tuple(word for each in way for word in each.words),
        tuple(rows),
    )
