"""Estimate which source word each target word translates, from sentence pairs alone.

    p(target word i, its source word j) = p(j | i) * t(target_i | source_j)
    p(j | i) = (1 - null) * exp(-tension * |i/m - j/n|) / Z_i   for a word,   null   for "no word"

IBM Model 1 (Brown et al. 1993; a flat p(j | i)) prepares t; then the diagonal prior sharpens it
(Dyer, Chahuneau & Smith 2013, who also give the tension and null weight kept here).
Expectation-maximisation over flat arrays: each possible link of each pair is one cell, and pairs of
one shape lie together so that a block is a view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
NULL_WEIGHT = 0.08
TENSION = 4.0
# A pseudo-count far below one keeps rare words from attracting everything (Mermer & Saraclar 2011).
PRIOR = 0.01


@dataclass(frozen=True)
class Block:
    """Pairs of one shape: `rows` says which pairs, with `target` words facing `source` words."""

    rows: Ints
    target: int
    source: int


def best_sources(
    source: list[Ints],
    target: list[Ints],
    iterations: int = 5,
    progress: Callable[[float], None] = lambda done: None,
) -> list[tuple[Block, Ints]]:
    """Find the likeliest source word of each target word.

    Args:
        source: word numbers of each source sentence, from 0.
        target: word numbers of each target sentence, as many; no sentence is empty.
        iterations: rounds of estimation for each of the two models.
        progress: told the part done, 0 to 1.

    Returns:
        For each block of pairs, the source position of each target word `[pair, target]`; -1 is no
        word.

    >>> words = [np.array([0, 1]), np.array([0]), np.array([1])]
    >>> [best.tolist() for block, best in best_sources(words, words) if block.target == 2]
    [[[0, 1]]]
    """
    blocks = _blocks(source, target)
    vocabulary = 1 + max(int(sentence.max()) for sentence in target)
    cells = [_cells(block, source, target, vocabulary) for block in blocks]
    bounds = np.cumsum([0, *(c.size for c in cells)])
    keys, entry = np.unique(np.concatenate([c.ravel() for c in cells]), return_inverse=True)
    entry = entry.astype(np.int32)
    owner = (keys // vocabulary).astype(np.int32)
    table = np.full(len(keys), 1.0, dtype=np.float32)
    priors = [_flat(block) for block in blocks]
    scores = np.empty(len(entry), dtype=np.float32)
    for step in range(2 * iterations + 1):
        if step == iterations:
            priors = [_diagonal(block) for block in blocks]
        np.take(table, entry, out=scores)
        for block, prior, start, stop in zip(blocks, priors, bounds, bounds[1:], strict=False):
            view = scores[start:stop].reshape(len(block.rows), block.target, block.source + 1)
            view *= prior
            if step < 2 * iterations:
                view /= view.sum(axis=2, keepdims=True)
        if step < 2 * iterations:
            table = _normalised(_sums(entry, scores, len(keys)), owner)
        progress((step + 1) / (2 * iterations + 1))
    return [
        (b, scores[i:j].reshape(len(b.rows), b.target, b.source + 1).argmax(axis=2) - 1)
        for b, i, j in zip(blocks, bounds, bounds[1:], strict=False)
    ]


def _blocks(source: list[Ints], target: list[Ints]) -> list[Block]:
    shapes = np.array([(len(t), len(s)) for s, t in zip(source, target, strict=True)])
    distinct, which = np.unique(shapes, axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(which.ravel()))[:-1])
    return [Block(rows, int(t), int(s)) for rows, (t, s) in zip(parts, distinct, strict=True)]


def _cells(block: Block, source: list[Ints], target: list[Ints], vocabulary: int) -> Ints:
    """Number each cell's word pair `[pair, target, 1 + source]`; column 0 is no word."""
    sources = np.stack([source[row] for row in block.rows]) + 1
    sources = np.pad(sources, ((0, 0), (1, 0)))
    targets = np.stack([target[row] for row in block.rows])
    cells: Ints = sources[:, None, :] * vocabulary + targets[:, :, None]
    return cells


def _flat(block: Block) -> Floats:
    return np.ones((block.target, block.source + 1), dtype=np.float32)


def _diagonal(block: Block) -> Floats:
    at = (np.arange(block.target)[:, None] + 1) / block.target
    to = (np.arange(block.source)[None, :] + 1) / block.source
    near = np.exp(-TENSION * np.abs(at - to))
    near *= (1 - NULL_WEIGHT) / near.sum(axis=1, keepdims=True)
    return np.pad(near, ((0, 0), (1, 0)), constant_values=NULL_WEIGHT).astype(np.float32)


def _normalised(counts: npt.NDArray[np.float64], owner: npt.NDArray[np.int32]) -> Floats:
    """Turn counts into t(target | source): exp of the mean logarithm under a sparse prior."""
    totals = _sums(owner, counts + PRIOR, 0)
    log_share = _digamma(counts + PRIOR) - _digamma(totals)[owner]
    return np.exp(log_share).astype(np.float32)


def _sums(entry: npt.NDArray[Any], weights: npt.NDArray[Any], size: int) -> npt.NDArray[np.float64]:
    return np.bincount(entry, weights, size).astype(np.float64, copy=False)


def _digamma(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """d/dx log gamma(x): recurrence to x + 6, then Abramowitz & Stegun 6.3.18."""
    shift = np.sum([1.0 / (value + k) for k in range(6)], axis=0)
    x = value + 6.0
    inverse = 1.0 / (x * x)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse / 252))
    return np.asarray(np.log(x) - 0.5 / x - series - shift)
