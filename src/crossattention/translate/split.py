"""Hold out sentence pairs so that nothing leaks, by a rule that anyone can repeat.

Pairs that share an English or a French sentence belong to one component; a whole component is held
out when the SHA-256 of its smallest English sentence (code point order, UTF-8), read as an integer
below 2**256, lies in the lowest `percent` hundredths. File order and chance play no part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crossattention.errors import ContractError

Pair = tuple[str, str]


@dataclass(frozen=True)
class Split:
    """The two parts of a set of pairs, each in the order given; no sentence of either language is
    in both."""

    train: list[Pair]
    held_out: list[Pair]


def split_pairs(pairs: Sequence[Pair], percent: int = 2) -> Split:
    """Split pairs into a training and a held-out part that share no sentence.

    Args:
        pairs: (English, French) pairs.
        percent: hundredths of the components held out, 0 to 100.

    Returns:
        Both parts.

    Raises:
        ContractError: `percent` lies outside 0..100.

    >>> split_pairs([("a", "x"), ("b", "x"), ("b", "y")], percent=100).held_out
    [('a', 'x'), ('b', 'x'), ('b', 'y')]
    """
    if not 0 <= percent <= 100:
        raise ContractError(f"`percent` must be in 0..100, got {percent}; give hundredths.")
    roots = _components(pairs)
    smallest: dict[int, str] = {}
    for (english, _), root in zip(pairs, roots, strict=True):
        smallest[root] = min(english, smallest.get(root, english))
    held = {root for root, english in smallest.items() if _in_lowest(english, percent)}
    parts = Split([], [])
    for pair, root in zip(pairs, roots, strict=True):
        (parts.held_out if root in held else parts.train).append(pair)
    return parts


def references(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Map each distinct English sentence to its distinct French ones, as they appear.

    >>> references([("a", "x"), ("a", "y"), ("a", "x")])
    {'a': ['x', 'y']}
    """
    found: dict[str, dict[str, None]] = {}
    for english, french in pairs:
        found.setdefault(english, {})[french] = None
    return {english: list(french) for english, french in found.items()}


def _components(pairs: Sequence[Pair]) -> list[int]:
    """Number the component of each pair (union-find with path halving)."""
    parent: list[int] = []
    node: dict[tuple[int, str], int] = {}

    def find(at: int) -> int:
        while parent[at] != at:
            parent[at] = parent[parent[at]]
            at = parent[at]
        return at

    english_nodes: list[int] = []
    for english, french in pairs:
        ends = []
        for key in ((0, english), (1, french)):
            if key not in node:
                node[key] = len(parent)
                parent.append(node[key])
            ends.append(node[key])
        parent[find(ends[0])] = find(ends[1])
        english_nodes.append(ends[0])
    return [find(at) for at in english_nodes]


def _in_lowest(sentence: str, percent: int) -> bool:
    digest = int.from_bytes(hashlib.sha256(sentence.encode("utf-8")).digest(), "big")
    return digest * 100 < percent << 256
