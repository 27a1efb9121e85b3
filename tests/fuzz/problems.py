"""Problems that hypothesis draws: sizes from 0, layouts, masks, owners, dtypes, gradients.

Only the shape of a problem is drawn; its numbers come from a drawn seed, so that a failing example
shrinks to the smallest shape that fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as some
from torch import Tensor

LAYOUTS = ("plain", "permuted", "sliced", "columns", "expanded")
DTYPES = {
    "float64": (torch.float64, torch.float64),
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "float16": (torch.float16, torch.float16),
    "half memory": (torch.float32, torch.float16),
    "half query": (torch.bfloat16, torch.float32),
}
# What no query may read may hold anything; what some query reads may not.
ANYTHING = (0.0, float("nan"), float("inf"), -float("inf"), 1e4)


@dataclass(frozen=True)
class Shape:
    """The shape of a problem: everything but its numbers.

    `wants` names the inputs that require grad; `hidden` is what rows hold that nobody may read.
    """

    sizes: dict[str, int]
    owner: list[int] | None
    lengths: list[int] | None
    visible: tuple[bool, ...] | None
    bias: tuple[bool, ...] | None
    hides: bool
    causal: str | int | None
    softcap: float | None
    scale: float | None
    dtypes: str
    layout: str
    wants: frozenset[str]
    hidden: float
    seed: int


def _axes() -> some.SearchStrategy[tuple[bool, ...] | None]:
    """Which axes of a mask are full, the others being 1; None: no mask."""
    return some.none() | some.tuples(*[some.booleans()] * 4)


@some.composite
def shapes(draw: some.DrawFn, *, layer: bool = False) -> Shape:
    """Draw a shape; a layer's streams have a width of at least 1."""
    border = some.sampled_from((1, 2, 3, 5, 7, 31, 33, 65))
    m = draw(some.integers(0, 4))
    owner = None
    if m and draw(some.booleans()):
        owner = draw(some.lists(some.integers(0, m - 1), max_size=6))
    g, repeats = draw(some.integers(1, 3)), draw(some.integers(1, 3))
    least = 1 if layer else 0
    sizes = {
        "m": m, "b": m if owner is None else len(owner), "g": g, "h": g * repeats,
        "t": draw(some.integers(0, 5) | border), "s": draw(some.integers(0, 9) | border),
        "d": draw(some.integers(least, 9)), "e": draw(some.integers(least, 9)),
    }  # fmt: skip
    if draw(some.booleans()):
        sizes["e"] = sizes["d"]
    lengths = some.lists(some.integers(0, sizes["s"]), min_size=m, max_size=m)
    corners = some.sampled_from(("top_left", "bottom_right")) | some.integers(-70, 70)
    names = ("query", "key", "value", "bias")
    return Shape(
        sizes=sizes,
        owner=owner,
        lengths=draw(some.none() | lengths),
        visible=draw(_axes()),
        bias=draw(_axes()),
        hides=draw(some.booleans()),
        causal=None if layer else draw(some.none() | corners),
        softcap=draw(some.none() | some.floats(0.25, 9)),
        scale=draw(some.none() | some.floats(-2, 2)),
        dtypes=draw(some.sampled_from(tuple(DTYPES))),
        layout=draw(some.sampled_from(LAYOUTS)),
        wants=draw(some.frozensets(some.sampled_from(names))),
        hidden=draw(some.sampled_from(ANYTHING)),
        seed=draw(some.integers(0, 2**31)),
    )


def lay(tensor: Tensor, layout: str) -> Tensor:
    """Give a tensor another layout; expanding repeats what stands first on one axis."""
    if layout == "permuted":
        back = tuple(reversed(range(tensor.dim())))
        return tensor.permute(back).contiguous().permute(back)
    if layout == "columns":
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "sliced":
        around = tensor.new_zeros([size + 3 for size in tensor.shape])
        return around[tuple(slice(1, 1 + size) for size in tensor.shape)].copy_(tensor)
    if layout == "expanded" and tensor.shape[0]:
        return tensor[:1].expand_as(tensor)
    return tensor


def masks(shape: Shape) -> dict[str, Any]:
    """Draw the numbers of a shape's masks: the keyword arguments of `attend`, without the bias."""
    full = tuple(shape.sizes[name] for name in "bhts")
    options: dict[str, Any] = {"softcap": shape.softcap, "scale": shape.scale}
    options |= {"causal": shape.causal, "lengths": shape.lengths, "owner": shape.owner}
    if shape.visible is not None:
        options["visible"] = lay(torch.rand(_sized(shape.visible, full)) > 0.4, shape.layout)
    return options


def bias_of(shape: Shape) -> Tensor | None:
    """Draw the numbers of a shape's bias."""
    if shape.bias is None:
        return None
    full = tuple(shape.sizes[name] for name in "bhts")
    drawn = torch.randn(_sized(shape.bias, full))
    hidden = torch.rand_like(drawn) > 0.7 if shape.hides else torch.zeros_like(drawn).bool()
    return lay(drawn.masked_fill(hidden, -torch.inf), shape.layout)


def unread(shape: Shape, options: dict[str, Any], bias: Tensor | None) -> Tensor:
    """Find the rows [m, s] that no query may read, by counting them one memory at a time."""
    b, h, t, s, m = (shape.sizes[name] for name in "bhtsm")
    read = torch.ones(b, h, t, s, dtype=torch.bool)
    if "visible" in options:
        read = read & options["visible"]
    if bias is not None:
        read = read & (bias != -torch.inf)
    if shape.causal is not None:
        offset = {"top_left": 0, "bottom_right": s - t}.get(str(shape.causal), shape.causal)
        read = read & torch.ones(t, s, dtype=torch.bool).tril(int(offset))
    found = torch.ones(m, s, dtype=torch.bool)
    for sequence, memory in enumerate(range(b) if shape.owner is None else shape.owner):
        rows = read[sequence].any(0).any(0) if h and t else torch.zeros(s, dtype=torch.bool)
        found[memory] &= ~rows
    if shape.lengths is not None:
        found |= torch.arange(s) >= torch.tensor(shape.lengths, dtype=torch.long)[:, None]
    return found


def _sized(full: tuple[bool, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size if kept else 1 for kept, size in zip(full, sizes, strict=True))
