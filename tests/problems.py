"""Random readings: sizes all different, masks that do not start at 0, owners in every shape."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

OWNERS = {
    "own": [0, 1, 2],
    "blocks": [0, 0, 1, 1, 2, 2],
    "scattered": [2, 0, 0, 1, 0, 2],
    "one for all": [1, 1, 1, 1],
    "unread": [2, 2, 0],
}


def streams(
    owner: list[int],
    heads: tuple[int, int] = (4, 2),
    dtype: torch.dtype = torch.float64,
    **sizes: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw query [b, h, t, d], key [m, g, s, d] and value [m, g, s, e] for three memories."""
    t, s, d, e = (sizes.get(name, size) for name, size in zip("tsde", (5, 7, 3, 3), strict=True))
    h, g = heads
    query = torch.randn(len(owner), h, t, d, dtype=dtype)
    return query, torch.randn(3, g, s, d, dtype=dtype), torch.randn(3, g, s, e, dtype=dtype)


def masks(kind: str, b: int, h: int, t: int, s: int) -> dict[str, Any]:
    """Draw the keyword arguments of one kind of mask; most leave some row empty."""
    visible = torch.rand(b, h, t, s) > 0.4
    visible[..., 0] = False
    visible[0, 0, 1] = False
    choices: dict[str, dict[str, Any]] = {
        "none": {},
        "lengths": {"lengths": [s, 2, 0]},
        "visible": {"visible": visible},
        "shared visible": {"visible": visible[:1, :1]},
        "visible of queries": {"visible": visible[:, :1, :, :1]},
        "visible and lengths": {"visible": visible[:, :1], "lengths": [2, s, 3]},
        "bias": {"bias": torch.randn(1, h, t, s, dtype=torch.float64)},
        "bias that hides": {
            "bias": torch.zeros(b, 1, t, s).masked_fill(~visible[:, :1], -torch.inf)
        },
        "causal": {"causal": "bottom_right"},
        "causal, empty rows": {"causal": -2, "lengths": [s, 4, 1]},
    }
    return choices[kind]


MASKS = (
    "none", "lengths", "visible", "shared visible", "visible of queries", "visible and lengths",
    "bias", "bias that hides", "causal", "causal, empty rows",
)  # fmt: skip
