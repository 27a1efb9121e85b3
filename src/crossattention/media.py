"""Interleaved text and media: each text row reads the media that began before it.

    "latest"         visible[t, s]  =  medium[s] == count[t]
    "all_previous"   visible[t, s]  =  medium[s] <= count[t]

Media are numbered from 1, and `count` says how many have begun; so text before the first medium
reads nothing, and is not opened to everything instead. Paper: Alayrac et al. 2022, "Flamingo: a
Visual Language Model for Few-Shot Learning", whose text reads the latest medium.
"""

from __future__ import annotations

import torch
from torch import Tensor

from crossattention.argument import INTEGERS, check_tensor, on_host
from crossattention.errors import ContractError, complaint, describe


def from_media(count: Tensor, media: Tensor, *, reads: str = "latest") -> Tensor:
    """Turn the media that have begun into `visible`.

    Args:
        count: integers `[b, t]`, how many media began at or before each text row (see
            `media_count`); 0 before any. It never falls, padding included.
        media: integers `[s]` or `[b|1, s]`, the medium, from 1, that each memory row belongs to,
            in any order. Rows of media that have not begun may be there already; rows of padding
            carry any medium's number, and `lengths` hides them.
        reads: "latest" (the last medium that began) or "all_previous" (it and those before it).
    Returns:
        bool `[b, 1, t, s]`, True = may be read.
    Raises:
        ContractError: other kinds, shapes or devices; a count that falls, or that goes beyond the
            last medium; a row of a medium below 1. Values are checked where that needs no waiting
            for a GPU.

    >>> from_media(torch.tensor([[0, 1, 2]]), torch.tensor([1, 1, 2])).int().tolist()
    [[[[0, 0, 0], [1, 1, 0], [0, 0, 1]]]]
    """
    if reads not in ("latest", "all_previous"):
        do = "choose what a text row reads"
        raise ContractError(complaint("reads", '"latest" or "all_previous"', describe(reads), do))
    want, do = "integers [b, t], the media begun so far", "see media_count"
    check_tensor("count", count, INTEGERS, want, do, rank=2)
    rows = _check_media(media, count)
    if on_host(count) and on_host(rows):
        _check_values(count, rows)
    begun, medium = count[:, None, :, None], rows[:, None, None, :]  # -> [b, 1, t, 1], [·, 1, 1, s]
    chosen = medium == begun if reads == "latest" else medium <= begun
    return chosen & (medium >= 1)  # where values go unchecked, there is still no medium 0 to read


def media_count(starts: Tensor) -> Tensor:
    """Count the media that began at or before each text row.

    Args:
        starts: bool `[b, t]`, True where a medium's marker stands; that row counts it already.
    Returns:
        int64 `[b, t]`; to continue a text, add the last count of what came before.
    Raises:
        ContractError: not boolean, or not of rank 2.

    >>> media_count(torch.tensor([[False, True, False, True]])).tolist()
    [[0, 1, 1, 2]]
    """
    do = "compare the tokens to the marker first, as in `tokens == marker`"
    check_tensor("starts", starts, (torch.bool,), "a bool tensor [b, t]", do, rank=2)
    return starts.cumsum(-1)


def _check_media(media: Tensor, count: Tensor) -> Tensor:
    """Give the media rank 2; one list of them serves all sequences, or each has its own."""
    want = f"integers [s] or [b|1, s] with b = {len(count)}, on {count.device}"
    do = "number the medium of each memory row from 1"
    check_tensor("media", media, INTEGERS, want, do)
    rows = media[None] if media.dim() == 1 else media  # [s] -> [1, s]
    if rows.dim() != 2 or len(rows) not in (1, len(count)) or rows.device != count.device:
        raise ContractError(complaint("media", want, describe(media), do))
    return rows


def _check_values(count: Tensor, media: Tensor) -> None:
    if media.numel() and int(media.min()) < 1:
        do = "0 is no medium: give padding any medium's number, and hide it by `lengths`"
        raise ContractError(complaint("media", "1 or more", f"{int(media.min())}", do))
    if not count.numel():
        return
    falls = (count[:, 1:] < count[:, :-1]).any(-1)
    if int(count.min()) < 0 or bool(falls.any()):
        low, falling = int(count.min()), falls.nonzero().flatten().tolist()
        given = f"values from {low}, falling in sequences {falling}"
        do = "it counts media from the start of the text; repeat the last count on padding"
        raise ContractError(complaint("count", "0 or more and never fall", given, do))
    last = media.amax(-1) if media.shape[-1] else media.new_zeros(1)  # [b|1, s] -> [b|1]
    beyond = (count.amax(-1) > last).nonzero().flatten().tolist()
    if beyond:
        given = f"more in sequences {beyond}"
        do = "count the markers of media that the memory holds"
        raise ContractError(complaint("count", "at most the last medium", given, do))
