"""Put token sequences of similar length beside each other, so that little is padded.

The longest come first: what does not fit in memory fails at once, not after hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from crossattention.translate.tokenizer import PAD


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group positions of similar length, longest first.

    Args:
        lengths: tokens of each sequence.
        budget: most tokens of a group, padding included; a single longer sequence stands alone.

    >>> list(by_length([2, 9, 3, 3], budget=6))
    [[1], [2, 3], [0]]
    """
    part: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda at: -lengths[at]):
        if part and lengths[part[0]] * (len(part) + 1) > budget:
            yield part
            part = []
        part.append(at)
    if part:
        yield part


def padded(sequences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Pad sequences at the end, int64 [b, longest].

    >>> padded([[5], [6, 7]], torch.device("cpu")).tolist()
    [[5, 0], [6, 7]]
    """
    longest = max(map(len, sequences))
    rows = [[*sequence, *[PAD] * (longest - len(sequence))] for sequence in sequences]
    return torch.tensor(rows, dtype=torch.int64, device=device)
