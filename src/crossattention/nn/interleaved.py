"""Who sees what where a stream reads media that are interleaved with it.

`count` [b, t] belongs to the stream and `media` [s] or [m, s] to the memory, so the second follows
the memory's owner: beams that share a memory share its media. Which rows see which media is
`crossattention.media.from_media`'s to say.
"""

from __future__ import annotations

from torch import Tensor

from crossattention.argument import INTEGERS, check_tensor
from crossattention.errors import ContractError, complaint, describe
from crossattention.media import from_media
from crossattention.memory import Memory


def visible_media(
    stream: Tensor, memory: Memory, count: Tensor | None, media: Tensor | None, reads: str
) -> Tensor | None:
    """Give `visible` for a stream [b, t, c] that reads a memory of interleaved media.

    Args:
        stream, memory: whose b sequences agree.
        count: integers `[b, t]`, the media begun at or before each row of the stream.
        media: integers `[s]` or `[m|1, s]`, the medium, from 1, that each memory row belongs to.
        reads: "latest" or "all_previous".
    Returns:
        bool `[b, 1, t, s]`, True = may be read; None where neither was given: all is visible.
    Raises:
        ContractError: one without the other; other kinds, shapes, devices or values.

    >>> import torch
    >>> stream, memory = torch.ones(1, 2, 4), Memory.of(torch.ones(1, 3, 4))
    >>> count, media = torch.tensor([[0, 1]]), torch.tensor([1, 1, 2])
    >>> visible_media(stream, memory, count, media, "latest").int().tolist()
    [[[[0, 0, 0], [1, 1, 0]]]]
    """
    if count is None and media is None:
        return None
    if count is None or media is None:
        want, do = "both given, or both None", "without either, every row reads every medium"
        given = "`count` alone" if media is None else "`media` alone"
        raise ContractError(complaint("count` and `media", want, given, do))
    b, t = stream.shape[:2]
    want = f"integers [b, t] = {[b, t]} on {stream.device}, the media begun so far"
    do = "count the media at each row of this stream: see media_count"
    check_tensor("count", count, INTEGERS, want, do, rank=2)
    if count.shape != (b, t) or count.device != stream.device:
        raise ContractError(complaint("count", want, describe(count), do))
    return from_media(count, _media_read(media, memory), reads=reads)


def _media_read(media: Tensor, memory: Memory) -> Tensor:
    """Give each query sequence the media of its memory, [s] or [m|1, s] -> [b|1, s]."""
    m, s = memory.size
    want, do = f"integers [s] or [m|1, s] with m = {m}, s = {s}", "number each memory row's medium"
    check_tensor("media", media, INTEGERS, want, do)
    rows = media[None] if media.dim() == 1 else media  # [s] -> [1, s]
    if rows.dim() != 2 or rows.shape[1] != s or len(rows) not in (1, m):
        raise ContractError(complaint("media", want, describe(media), do))
    if memory.owner is None or len(rows) == 1:
        return rows
    return rows[memory.owner.index.to(rows.device)]  # [m, s] -> [b, s]
