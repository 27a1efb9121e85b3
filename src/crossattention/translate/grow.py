"""Join two one-way alignments into one set of word links.

Start from the links both directions agree on and grow along neighbours that either direction
proposes, as long as one of the two words has no link yet (grow-diag; Koehn, Och & Marcu 2003; Och &
Ney 2003). All admissible neighbours of a round join at once, so the order of scanning plays no
part.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


def grow_diagonal(forward: Bools, backward: Bools, final: bool = False) -> Bools:
    """Symmetrise link matrices `[pair, target, source]`.

    Args:
        forward: links chosen for each target word.
        backward: links chosen for each source word.
        final: also add proposed links whose two words both have none (grow-diag-final-and).

    Returns:
        The joined links, between the intersection and the union.

    >>> f = np.array([[[True, False], [True, False]]])
    >>> grow_diagonal(f, np.array([[[True, False], [False, False]]])).astype(int).tolist()
    [[[1, 0], [1, 0]]]
    """
    union = forward | backward
    links = forward & backward
    while True:
        fresh = union & ~links & _beside(links) & _open(links)
        if not fresh.any():
            break
        links = links | fresh
    if final:
        bare = ~links.any(axis=1, keepdims=True) & ~links.any(axis=2, keepdims=True)
        links = links | (union & bare)
    return links


def _beside(links: Bools) -> Bools:
    """Mark the eight neighbours of every link."""
    padded = np.pad(links, ((0, 0), (1, 1), (1, 1)))
    rows = padded[:, :-2] | padded[:, 1:-1] | padded[:, 2:]
    return np.asarray(rows[:, :, :-2] | rows[:, :, 1:-1] | rows[:, :, 2:])


def _open(links: Bools) -> Bools:
    """Mark the cells whose target word or source word has no link."""
    return np.asarray(~links.any(axis=1, keepdims=True) | ~links.any(axis=2, keepdims=True))
