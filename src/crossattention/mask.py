"""What a query row may read: one boolean, `visible`, in which True means "may be read".

Lengths, causality and booleans all become `visible` and combine by AND; a float is a `bias` and is
added to the scores whatever its values are. The name carries the polarity, so the converters from
other conventions (`from_padding_mask`, `from_attention_mask`) carry theirs in their own names.

A row is *empty* where nothing is visible, or every visible score has a bias of -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from crossattention.argument import (
    FLOATS,
    INTEGERS,
    check_integers,
    check_range,
    check_tensor,
)
from crossattention.errors import ContractError, complaint, describe

Causal = str | int | None


class Mask(NamedTuple):
    """Everything that decides which scores count, checked.

    `rows` [m, s] belongs to the memories, `visible` and `bias` (rank 4, each axis full or 1)
    to the query sequences; `reads` is False for empty query rows, None if there are none.
    `lengths` [m] says what `rows` would, until a kernel asks for these.

    >>> Mask().reads is None
    True
    """

    rows: Tensor | None = None
    visible: Tensor | None = None
    bias: Tensor | None = None
    reads: Tensor | None = None
    lengths: Tensor | None = None


def from_padding_mask(padding: Tensor) -> Tensor:
    """Turn a padding mask (True = padding, as in `torch.nn` modules) into `visible`.

    Args:
        padding: bool `[m, s]`, True where the memory row is padding and must not be read.
    Returns:
        bool `[m, 1, 1, s]`, True = may be read.
    Raises:
        ContractError: not boolean, or not of rank 2.

    >>> from_padding_mask(torch.tensor([[False, False, True]])).tolist()
    [[[[True, True, False]]]]
    """
    do = "compare it to the padding value first, as in `tokens == pad`"
    check_tensor("padding", padding, (torch.bool,), "a bool tensor [m, s]", do, rank=2)
    return ~padding[:, None, None, :]  # [m, s] -> [m, 1, 1, s]


def from_attention_mask(attention_mask: Tensor) -> Tensor:
    """Turn an attention mask (1 = real, 0 = padding, as in Hugging Face) into `visible`.

    Args:
        attention_mask: integer or bool `[m, s]`, of zeros and ones only.
    Returns:
        bool `[m, 1, 1, s]`, True = may be read.
    Raises:
        ContractError: a float (add it as `bias`), another rank, or other values than 0 and 1.

    >>> from_attention_mask(torch.tensor([[1, 1, 0]])).tolist()
    [[[[True, True, False]]]]
    """
    do = "pass 0 and 1 as integers; a float mask is added to the scores, so pass it as `bias`"
    want, kinds = "an integer or bool tensor [m, s]", (torch.bool, *INTEGERS)
    check_tensor("attention_mask", attention_mask, kinds, want, do, rank=2)
    want, do = "made of zeros and ones", "1 marks a real row and 0 padding"
    check_range("attention_mask", attention_mask, 2, want, do)
    return attention_mask.bool()[:, None, None, :]  # [m, s] -> [m, 1, 1, s]


def check_lengths(lengths: Tensor | Sequence[int], memories: int, rows: int) -> Tensor:
    """Check how many rows of each memory are real.

    Args:
        lengths: integers `[m]`, each from 0 to s: rows at or beyond a length are never read.
        memories, rows: m and s.
    Returns:
        int64 `[m]`. Values are checked where that needs no waiting for a GPU.
    Raises:
        ContractError: not integers, another count than m, below 0 or above s.

    >>> check_lengths([3, 0], memories=2, rows=5).tolist()
    [3, 0]
    """
    do = "pass the number of real rows of each memory"
    given = check_integers("lengths", lengths, "integers [m]", do)
    if list(given.shape) != [memories]:
        want, do = f"of shape [{memories}], one for each of {memories} memories", "count again"
        raise ContractError(complaint("lengths", want, f"shape {list(given.shape)}", do))
    want, do = f"between 0 and {rows}, the memory's rows", "a length counts real rows"
    check_range("lengths", given, rows + 1, want, do)
    return given


def check_visible(visible: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    """Check a boolean mask against [b, h, t, s] and give it rank 4.

    Rank 2 is [t, s]; each axis is full or 1; nothing is padded or cropped.

    >>> check_visible(torch.ones(3, 5, dtype=torch.bool), (2, 4, 3, 5)).shape
    torch.Size([1, 1, 3, 5])
    """
    do = "use from_padding_mask or from_attention_mask, or pass an additive float as `bias`"
    check_tensor("visible", visible, (torch.bool,), "a bool tensor, True = may be read", do)
    return _ranked("visible", visible, shape)


def check_bias(bias: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    """Check an additive bias against [b, h, t, s] and give it rank 4; -inf hides.

    >>> check_bias(torch.zeros(2, 1, 1, 5), (2, 4, 3, 5)).shape
    torch.Size([2, 1, 1, 5])
    """
    do = "pass a bool as `visible`; for integer masks see from_padding_mask, from_attention_mask"
    check_tensor("bias", bias, FLOATS, "a float tensor, added to the scores", do)
    return _ranked("bias", bias, shape)


def causal_rows(causal: Causal, queries: int, rows: int, device: torch.device) -> Tensor | None:
    """Say which rows each query may read in causal order: row i reads s <= i + offset.

    Args:
        causal: None; "top_left" (offset 0); "bottom_right" (offset s - t); or the offset itself.
    Returns:
        bool `[1, 1, t, s]`, or None for None.
    Raises:
        ContractError: anything else: a bare flag has no meaning when t and s differ.

    >>> causal_rows("bottom_right", 2, 3, torch.device("cpu")).int().tolist()
    [[[[1, 1, 0], [1, 1, 1]]]]
    """
    if causal is None:
        return None
    if causal == "top_left":
        offset = 0
    elif causal == "bottom_right":
        offset = rows - queries
    elif isinstance(causal, int | torch.SymInt) and not isinstance(causal, bool):
        offset = min(max(causal, -queries), rows)  # beyond these nothing changes
    else:
        do = f"a flag has no alignment, and here t = {queries}, s = {rows}: name the corner"
        want = 'an alignment: None, "top_left", "bottom_right" or an integer offset'
        raise ContractError(complaint("causal", want, describe(causal), do))
    row = torch.arange(queries, device=device)[:, None]
    column = torch.arange(rows, device=device)[None, :]
    return (column <= row + offset)[None, None]  # [t, s] -> [1, 1, t, s]


def both(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    """Combine by AND; None hides nothing.

    >>> both(None, torch.tensor([True])).tolist()
    [True]
    """
    if left is None:
        return right
    return left if right is None else left & right


def _ranked(name: str, mask: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    ranked = mask[None, None] if mask.dim() == 2 else mask  # [t, s] -> [1, 1, t, s]
    if ranked.dim() != 4 or any(
        have != want and have != 1 for have, want in zip(ranked.shape, shape, strict=True)
    ):
        want = f"of shape [t, s] or [b, h, t, s] = {list(shape)}, each axis full or 1"
        do = "masks are never padded or cropped: build it for the memory's rows"
        raise ContractError(complaint(name, want, f"shape {list(mask.shape)}", do))
    return ranked
