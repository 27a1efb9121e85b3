"""The masks of torch's modules, in the house's terms: True hides there, a float is added.

`visible = ~key_padding_mask & ~attn_mask` where they are booleans; what is a float is a bias.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from crossattention.adapters.parts.masks import Masks


def from_torch_masks(
    padding: Tensor | None,
    mask: Tensor | None,
    shape: tuple[int, int, int, int],
    extra: int = 0,
) -> Masks | None:
    """Turn `key_padding_mask` and `attn_mask` into what may be read, and what is added.

    Args:
        padding: `[b, s]`, bool (True = hidden) or float (added).
        mask: `[t, s]` or `[b·h, t, s]`, bool (True = hidden) or float (added).
        shape: b, h, t and s.
        extra: rows behind the memory's, which no mask hides.
    Returns:
        Masks over s + extra rows; None where torch would not take these masks either.

    >>> hidden = torch.tensor([[False, True]])
    >>> from_torch_masks(hidden, None, (1, 2, 3, 2), extra=1).visible.tolist()
    [[[[True, False, True]]]]
    """
    b, h, t, s = shape
    masks = Masks()
    for given, shapes in (
        (padding, {(b, s): (b, 1, 1, s)}),
        (mask, {(t, s): (1, 1, t, s), (b * h, t, s): (b, h, t, s)}),
    ):
        if given is None:
            continue
        ranked = next((to for have, to in shapes.items() if given.shape == have), None)
        if ranked is None or not (given.dtype == torch.bool or given.is_floating_point()):
            return None
        masks = _joined(masks, F.pad(given.reshape(ranked), (0, extra)))
    return masks


def _joined(masks: Masks, given: Tensor) -> Masks:
    if given.dtype == torch.bool:
        return Masks(~given if masks.visible is None else masks.visible & ~given, masks.bias)
    return Masks(masks.visible, given if masks.bias is None else masks.bias + given)
