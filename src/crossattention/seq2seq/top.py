"""The k largest of long rows, without sorting them: most of a row is ruled out by maxima of blocks.

the k largest numbers of a row lie in the k blocks with the largest maxima
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 64


def largest(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k largest numbers of each row, largest first; among equals, any.

    Args:
        rows: `[..., n]`.
    Returns:
        Numbers and their places, `[..., k]`; all n if there are no more.

    >>> largest(torch.arange(1000.0)[None], 2)[1].tolist()
    [[999, 998]]
    """
    n = rows.shape[-1]
    blocks = n // BLOCK
    if blocks <= 2 * k:
        return rows.topk(min(k, n))
    whole = rows[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))
    kept = whole.amax(-1).topk(k, sorted=False).indices  # [..., blocks] -> [..., k]
    places = kept[..., None] * BLOCK + torch.arange(BLOCK, device=rows.device)
    behind = torch.arange(blocks * BLOCK, n, device=rows.device)  # less than a block: all of it
    behind = behind.expand(*rows.shape[:-1], -1)
    places = torch.cat([places.flatten(-2), behind], -1)  # -> [..., k·64 + rest]
    numbers, at = rows.gather(-1, places).topk(k)
    return numbers, places.gather(-1, at)
