"""Random problems for the general test of each kind: t and s, b and h, rows and widths differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

B, H, G, T, S, D, E = 3, 4, 2, 5, 7, 11, 11  # the fused kernel has one head width


def problem(dtype: torch.dtype = torch.float64, **sizes: int) -> dict[str, Any]:
    """Draw query, key, value and what comes back; `sizes` replaces some of the sizes."""
    usual = zip("bhgtsde", (B, H, G, T, S, D, E), strict=True)
    b, h, g, t, s, d, e = (sizes.get(name, size) for name, size in usual)
    m = sizes.get("m", b)
    shapes = {"query": (b, h, t, d), "key": (m, g, s, d), "value": (m, g, s, e)}
    shapes["upstream"] = (b, h, t, e)
    return {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()}


def some_visible(*shape: int) -> Tensor:
    """Draw a boolean in which most rows read something."""
    return torch.rand(shape) > 0.4
