"""Word links between the two sides of sentence pairs, estimated from the pairs themselves.

Two one-way models, each language reading the other, are joined into one set of links on lower-cased
words; these teach one attention head where to look (Garg et al. 2019, arXiv:1909.02074).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crossattention.errors import ContractError
from crossattention.translate.aligner import best_sources
from crossattention.translate.grow import grow_diagonal
from crossattention.translate.tokenizer import word_split

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Links:
    """Word links of many sentence pairs, kept flat.

    Args:
        starts: `[pairs + 1]`, where each pair's links start.
        source: `[links]`, position of the source word in its sentence.
        target: `[links]`, position of the target word in its sentence.
    """

    starts: Ints
    source: npt.NDArray[np.int16]
    target: npt.NDArray[np.int16]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, pair: int) -> list[tuple[int, int]]:
        """Return one pair's links as (source word, target word), in order of the target."""
        part = slice(self.starts[pair], self.starts[pair + 1])
        return list(zip(self.source[part].tolist(), self.target[part].tolist(), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the links as .npz, replacing `path` in one step."""
        temporary = Path(f"{os.fspath(path)}.tmp")
        with temporary.open("wb") as file:
            np.savez_compressed(file, starts=self.starts, source=self.source, target=self.target)
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Links:
        """Read links that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return cls(file["starts"], file["source"], file["target"])


def word_links(
    english: Sequence[Sequence[str]],
    french: Sequence[Sequence[str]],
    iterations: int = 5,
    progress: Callable[[float], None] = lambda done: None,
) -> Links:
    """Link the words of sentence pairs.

    Args:
        english: words of each source sentence, see `split_words`.
        french: words of each target sentence, as many sentences.
        iterations: rounds of estimation for each model and direction.
        progress: told the part done, 0 to 1.

    Returns:
        Links of every pair, in order; a pair with an empty side has none.

    Raises:
        ContractError: the two sides differ in number.

    >>> word_links([["a", "b"], ["a"]], [["x", "y"], ["x"]]).of(0)
    [(0, 0), (1, 1)]
    """
    if len(english) != len(french):
        raise ContractError(
            f"`french` must match `english` line by line, got {len(french)} for {len(english)}; "
            "give one sentence for one sentence."
        )
    kept = [at for at in range(len(english)) if english[at] and french[at]]
    counts = np.zeros(len(english), dtype=np.int64)
    if not kept:
        return Links(np.zeros(len(english) + 1, dtype=np.int64), *_no_links())
    source = _numbered([english[at] for at in kept])
    target = _numbered([french[at] for at in kept])
    forward = best_sources(source, target, iterations, lambda done: progress(0.5 * done))
    backward = best_sources(target, source, iterations, lambda done: progress(0.5 + 0.5 * done))
    reverse = {(block.source, block.target): best for block, best in backward}
    found: list[Ints] = []
    for block, best in forward:
        ahead = best[:, :, None] == np.arange(block.source)
        back = reverse[block.target, block.source][:, :, None] == np.arange(block.target)
        pair, row, column = np.nonzero(grow_diagonal(ahead, back.transpose(0, 2, 1)))
        found.append(np.stack([np.asarray(kept)[block.rows][pair], row, column]))
    flat = np.concatenate(found, axis=1)
    flat = flat[:, np.argsort(flat[0], kind="stable")]
    np.add.at(counts, flat[0], 1)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Links(starts, flat[2].astype(np.int16), flat[1].astype(np.int16))


def split_words(texts: Sequence[str]) -> list[list[str]]:
    """Split each text into lower-cased words, the form in which words are linked."""
    return [[word.lower() for word in word_split(text)] for text in texts]


def _numbered(sentences: Sequence[Sequence[str]]) -> list[Ints]:
    number: dict[str, int] = {}
    return [
        np.array([number.setdefault(word, len(number)) for word in sentence], dtype=np.int64)
        for sentence in sentences
    ]


def _no_links() -> tuple[npt.NDArray[np.int16], npt.NDArray[np.int16]]:
    return np.zeros(0, dtype=np.int16), np.zeros(0, dtype=np.int16)
