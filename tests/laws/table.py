"""The one table of cases that all laws share: its axes, and how much of their product is run.

A law names the axes it ranges over and is run on a pairwise covering of them: any two values of
any two axes meet in some case. `LAWS=full` runs the whole product instead (`make laws`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations, product
from zlib import crc32

KERNELS = ("reference", "matmul", "fused", "native", "auto")
EXACT = ("reference", "matmul", "fused", "auto")  # those that take float64 and give gradients
MASKS = (
    "none", "lengths", "visible", "visible of heads", "visible of queries", "visible, lengths",
    "bias", "bias of a head", "bias that hides", "bias, visible, lengths", "top left",
    "bottom right", "causal, lengths", "nothing visible",
)  # fmt: skip
LAYOUTS = (
    "contiguous", "permuted", "sliced", "expanded batch", "expanded heads", "expanded length",
    "no queries", "no rows", "no sequences", "no width",
)  # fmt: skip
DTYPES = ("float64", "float32", "bfloat16", "float16", "float32 bias", "half memory")
MODES = ("eval", "train", "no_grad", "inference_mode", "autocast")
OWNERS = ("own", "blocks", "scattered", "one for all", "unread")
SIZES = (
    "primes", "wide values", "s=1", "s=31", "s=32", "s=33", "s=63", "s=64", "s=65", "s=127",
    "s=128", "s=129", "t=1", "t=31", "t=32", "t=33", "t=63", "t=64", "t=65", "t=127", "t=129",
)  # fmt: skip
FORMS = ("projected", "raw")
HEADS = ("each", "grouped", "one")


@dataclass(frozen=True)
class Case:
    """One row of the table. A field holds the value of one axis; the first is the plainest."""

    door: str = "function"
    kernel: str = "reference"
    form: str = "projected"
    kept: str = "fresh"
    mask: str = "none"
    layout: str = "contiguous"
    dtype: str = "float64"
    mode: str = "eval"
    owner: str = "own"
    size: str = "primes"
    heads: str = "each"
    softcap: str = "none"
    wants: str = ""

    def but(self, **changes: str) -> Case:
        """The same case with some axes changed."""
        return replace(self, **changes)

    @property
    def seed(self) -> int:
        """What is drawn depends on what is given, not on the path that computes with it."""
        drawn = (self.mask, self.layout, self.owner, self.size, self.heads, self.softcap)
        return crc32(" ".join(drawn).encode())

    def __str__(self) -> str:
        values = [getattr(self, f.name) for f in fields(self)
                  if getattr(self, f.name) != f.default]  # fmt: skip
        return "-".join(values) or "plain"


PLAIN = Case()
Pair = tuple[tuple[str, str], tuple[str, str]]

PRODUCT: dict[str, Sequence[str]] = {
    "door": ("function", "layer"),
    "kernel": KERNELS,
    "form": FORMS,
    "kept": ("fresh", "remembered"),
    "mask": MASKS,
    "layout": LAYOUTS,
    "dtype": DTYPES,
    "mode": MODES,
}
ROTATED: dict[str, Sequence[str]] = {
    "owner": OWNERS, "size": SIZES, "heads": HEADS, "softcap": ("none", "capped"),
}  # fmt: skip


Axes = Mapping[str, Sequence[str]]


def is_possible(axes: Axes) -> bool:
    """Whether these values leave a case that can be written down.

    A function has no forms and remembers nothing; a layer has no width 0 and streams without heads;
    rows passed as they are have one reader each, in the layer's dtype.
    """

    def may(name: str, *values: str) -> bool:
        return any(value in values for value in axes.get(name, (getattr(PLAIN, name),)))

    def may_else(name: str, *values: str) -> bool:
        return any(value not in values for value in axes.get(name, (getattr(PLAIN, name),)))

    if may("door", "function") and may("form", "projected") and may("kept", "fresh"):
        return True
    if not may("door", "layer") or not may_else("layout", "expanded heads", "no width"):
        return False
    return may("kept", "remembered") or (may("owner", "own") and may_else("dtype", "half memory"))


def cases(**axes: Sequence[str]) -> list[Case]:
    """List the cases of a law that ranges over these axes; the others keep their plain value."""
    return everything(axes) if os.environ.get("LAWS") == "full" else pairwise(axes)


def every(**axes: Sequence[str]) -> dict[str, Sequence[str]]:
    """All axes with all their values, but for those that are named."""
    return {**PRODUCT, **ROTATED, **axes}


def everything(axes: Axes) -> list[Case]:
    """Multiply the axes of the product; the others take their values in turn along the way."""
    multiplied = [name for name in axes if name not in ROTATED]
    turning = [name for name in axes if name in ROTATED]
    found, turn = [], 0
    for values in product(*(axes[name] for name in multiplied)):
        chosen = dict(zip(multiplied, values, strict=True))
        if not is_possible({**axes, **_one(chosen)}):
            continue
        for name in turning:
            turn += 1
            possible = axes[name]
            if name == "owner" and chosen.get("door") == "layer":
                possible = [v for v in possible if is_possible(_one({**chosen, name: v}))]
            chosen[name] = possible[turn % len(possible)]
        found.append(Case(**chosen))
    return found


def pairwise(axes: Axes) -> list[Case]:
    """Cover all possible pairs of values greedily: always the same cases, in the same order."""
    wanted = [
        ((a, x), (b, y))
        for a, b in combinations(axes, 2)
        for x, y in product(axes[a], axes[b])
        if is_possible({**axes, a: (x,), b: (y,)})
    ]
    missing, found = set(wanted), []
    for one, other in wanted:
        if (one, other) in missing:
            chosen = _grown(dict((one, other)), axes, missing)
            missing.difference_update(combinations([(n, chosen[n]) for n in axes], 2))
            found.append(Case(**chosen))
    return found


def _grown(fixed: dict[str, str], axes: Axes, missing: set[Pair]) -> dict[str, str]:
    """Choose each further value for the missing pairs that it makes with those chosen before."""
    chosen, order = dict(fixed), list(axes)
    for name, values in axes.items():
        if name in chosen:
            continue
        at = order.index(name)
        taken = {**axes, **_one(chosen)}
        possible = [v for v in values if is_possible({**taken, name: (v,)})]

        def gain(value: str, name: str = name, at: int = at) -> int:
            return sum(
                (((o, w), (name, value)) if order.index(o) < at else ((name, value), (o, w)))
                in missing
                for o, w in chosen.items()
            )

        # Ties turn with what is chosen, so that no value is preferred everywhere.
        spin = crc32(repr(chosen).encode()) % len(possible)
        chosen[name] = max(possible[spin:] + possible[:spin], key=gain)
    return chosen


def _one(chosen: Mapping[str, str]) -> dict[str, Sequence[str]]:
    return {name: (value,) for name, value in chosen.items()}
