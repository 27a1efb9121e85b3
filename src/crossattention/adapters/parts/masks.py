"""What one read of somebody else's module may see, and how to tell that a mask means it.

True = may be read, as in `scaled_dot_product_attention`; a float is added to the scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.mask import Causal


@dataclass(frozen=True)
class Masks:
    """What one read may see: `visible` (True = may be read), an additive `bias`, and `causal`.

    >>> Masks().bias is None
    True
    """

    visible: Tensor | None = None
    bias: Tensor | None = None
    causal: Causal = None

    @classmethod
    def seen(cls, mask: Tensor | None) -> Masks:
        """Take a mask as `scaled_dot_product_attention` does: True = may be read, or additive.

        >>> Masks.seen(torch.ones(1, 1, 1, 2, dtype=torch.bool)).visible.all().item()
        True
        """
        if mask is None:
            return cls()
        return cls(mask) if not mask.is_floating_point() else cls(None, mask)


def fits(mask: Tensor | None, shape: tuple[int, int, int, int]) -> bool:
    """Whether a mask is boolean or float, of rank 4, with each axis of `shape` or 1.

    >>> fits(torch.ones(2, 1, 1, 5), (2, 3, 4, 5)), fits(torch.ones(2, 5), (2, 3, 4, 5))
    (True, False)
    """
    if mask is None:
        return True
    kind = mask.is_floating_point() or mask.dtype == torch.bool
    return (
        kind
        and mask.dim() == 4
        and all(have in (1, want) for have, want in zip(mask.shape, shape, strict=True))
    )
