"""A translation and what each of its words read, on whole words.

    word[i, j] = mean over the tokens t of target word i, sum over the tokens s of source word j,
                 of weight[t, s]

The weights of a row sum to 1; what was read from the end token, which is how a head says "no word",
stays in a last column and is never shared out among the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Grouped = Sequence[tuple[str, list[int]]]
Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Translation:
    """One line in another language.

    Attributes:
        source: the line that was translated.
        text: its translation.
        score: mean log-probability of a token, end included; the mean of the pieces' where the
            line was cut. Higher is better.
        tokens, token_scores: the target tokens as text, and the log-probability of each.
        source_words, words: words of both sides.
        alignment: for each word, the weight of each source word and, last, of the end.
        others: the next best translations of the line, best first.

    >>> Translation("a", "b", 0.0, words=("b",), alignment=((0.3, 0.7),)).strongest()
    [None]
    """

    source: str
    text: str
    score: float
    tokens: tuple[str, ...] = ()
    token_scores: tuple[float, ...] = ()
    source_words: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    alignment: Rows = ()
    others: tuple[Translation, ...] = ()

    def strongest(self) -> list[int | None]:
        """Name, for each word, the position of the source word it read most; None is the end.

        >>> Translation("a", "b", 0.0, words=("b",), alignment=((0.7, 0.3),)).strongest()
        [0]
        """
        return [strongest(row) for row in self.alignment]


def strongest(row: Sequence[float]) -> int | None:
    """Find the source word of the largest weight; None where the last column, the end, has it.

    >>> strongest([0.2, 0.6, 0.2])
    1
    """
    best = max(range(len(row)), key=row.__getitem__)
    return None if best == len(row) - 1 else best


def word_weights(weights: Tensor, target: Grouped, source: Grouped) -> Tensor:
    """Gather the weights of tokens into weights of words.

    Args:
        weights: `[t, s]`, what each target token read.
        target, source: each word with the positions of its tokens, as `Tokenizer.words` gives them.
    Returns:
        `[target words, source words + 1]`; the last column is what no word holds: the end token.

    >>> tokens = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    >>> word_weights(tokens, [("bonjour", [0, 1])], [("hello", [0, 1])]).tolist()
    [[0.875, 0.125]]
    """
    gather = torch.zeros(weights.shape[1], len(source) + 1)  # [s, source words + 1]
    gather[:, -1] = 1
    for word, (_, positions) in enumerate(source):
        for position in positions:
            gather[position] = 0
            gather[position, word] = 1
    mean = torch.zeros(len(target), weights.shape[0])  # [target words, t]
    for word, (_, positions) in enumerate(target):
        mean[word, positions] = 1 / len(positions)
    return mean @ weights.float().cpu() @ gather
