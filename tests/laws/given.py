"""What a case is given: streams in their layout, masks twice over, owners and a layer.

Masks are written once as the library takes them and once by hand, as one boolean [b, h, t, s].
Everything is drawn in float64 from the case's seed, then rounded, so that the paths of one case
meet the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import crossattention as xa
from laws.table import Case

C, ROWS_C = 19, 23  # widths of the query stream and of the memory's rows
OWNERS = {
    "own": [0, 1], "blocks": [0, 0, 1, 1], "scattered": [1, 0, 0, 1, 0],
    "one for all": [1, 1, 1, 1, 1], "unread": [0, 0, 0, 0, 0],
}  # fmt: skip
STREAM = {"float32 bias": torch.float16, "half memory": torch.float32}
MEMORY = {"float32 bias": torch.float16, "half memory": torch.float16}
BIAS = {"float32 bias": torch.float32, "half memory": torch.float32}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a case: different primes, but for tile borders, grouped heads and zeros."""

    b: int
    m: int
    h: int
    g: int
    t: int
    s: int
    d: int
    e: int

    @classmethod
    def of(cls, case: Case) -> Sizes:
        """Read the sizes off a case."""
        empty = {"no queries": "t", "no rows": "s", "no width": "d"}.get(case.layout)
        sizes = {"t": 7, "s": 11, "d": 13}
        if "=" in case.size:
            name, size = case.size.split("=")
            sizes[name] = int(size)
        if empty:
            sizes[empty] = 0
        h, g = {"each": (3, 3), "grouped": (6, 2), "one": (3, 1)}[case.heads]
        e = 17 if case.size == "wide values" else 13
        none = case.layout == "no sequences"
        b = 0 if none else len(OWNERS[case.owner])
        m = b if case.owner == "own" else 2
        return cls(b, m, h, g, sizes["t"], sizes["s"], sizes["d"], e)


@dataclass
class Given:
    """Everything a reading is given. `visible` and `bias` are those of the definition."""

    sizes: Sizes
    owner: list[int]
    lengths: list[int] | None
    options: dict[str, Any]  # masks as the library takes them, lengths apart
    visible: Tensor  # [b, h, t, s]
    leaves: dict[str, Tensor]  # query, key, value (of a layer: query, rows), and bias if any
    softcap: float | None
    layer: xa.CrossAttention | None = None

    @property
    def bias(self) -> Tensor | None:
        """The bias, if the case has one."""
        return self.leaves.get("bias")


def draw(case: Case, device: torch.device) -> Given:
    """Draw what a case is given."""
    torch.manual_seed(case.seed)
    sizes = Sizes.of(case)
    owner = OWNERS[case.owner][: sizes.b]
    lengths, options, visible, bias = _masks(case.mask, sizes, owner)
    b, m, h, g, t, s, d, e = (getattr(sizes, name) for name in "bmhgtsde")
    if case.door == "layer":
        shapes = {"query": (b, t, C), "rows": (m, s, ROWS_C)}
    else:
        shapes = {"query": (b, h, t, d), "key": (m, g, s, d), "value": (m, g, s, e)}
    leaves = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    leaves = {name: lay(each, case.layout).to(device) for name, each in leaves.items()}
    softcap = 1.5 if case.softcap == "capped" else None
    layer = build(sizes, softcap).to(device) if case.door == "layer" else None
    plain = getattr(torch, case.dtype, torch.float64)
    stream = STREAM.get(case.dtype, plain)
    for name, each in leaves.items():
        is_memory = name in ("key", "value")  # a layer's rows are projected, then halved
        leaves[name] = each.to(MEMORY.get(case.dtype, plain) if is_memory else stream)
    if layer is not None:
        layer = layer.to(stream)
    if bias is not None:
        leaves["bias"] = lay(bias, case.layout).to(device, BIAS.get(case.dtype, plain))
        options["bias"] = leaves["bias"]
    if "visible" in options:
        options["visible"] = lay(options["visible"], case.layout).to(device)
    return Given(sizes, owner, lengths, options, visible.to(device), leaves, softcap, layer)


def build(sizes: Sizes, softcap: float | None = None) -> xa.CrossAttention:
    """Build a layer with random weights and biases, in float64."""
    layer = xa.CrossAttention(
        C, sizes.h, memory_width=ROWS_C, key_width=sizes.d, value_width=sizes.e,
        memory_heads=sizes.g,
    )  # fmt: skip
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    layer.softcap = softcap
    return layer.double().eval()


def lay(tensor: Tensor, layout: str) -> Tensor:
    """Give a tensor another layout; expanding makes its numbers equal along one axis."""
    if layout == "permuted":
        back = tuple(reversed(range(tensor.dim())))
        return tensor.permute(back).contiguous().permute(back)
    if layout == "sliced":
        around = tensor.new_zeros([size + 3 for size in tensor.shape])
        inside = around[tuple(slice(2, 2 + size) for size in tensor.shape)]
        return inside.copy_(tensor)
    axis = {"expanded batch": 0, "expanded heads": 1, "expanded length": -2}.get(layout)
    if axis is None or tensor.dtype == torch.bool or tensor.shape[axis] == 1:
        return tensor
    return tensor.narrow(axis, 0, min(1, tensor.shape[axis])).expand_as(tensor)


def _masks(
    kind: str, sizes: Sizes, owner: list[int]
) -> tuple[list[int] | None, dict[str, Any], Tensor, Tensor | None]:
    b, m, h, t, s = sizes.b, sizes.m, sizes.h, sizes.t, sizes.s
    lengths, options, bias = None, {}, None
    visible = torch.ones(b, h, t, s, dtype=torch.bool)
    if "lengths" in kind:
        lengths = [s - s // 3, 0 if kind == "causal, lengths" else (s + 1) // 2][:m]
        for sequence, memory in enumerate(owner):
            visible[sequence, :, :, lengths[memory] :] = False
    shapes = {
        "visible": (b, h, t, s), "visible of heads": (1, h, 1, s),
        "visible of queries": (b, 1, t, 1), "visible, lengths": (b, 1, t, s),
        "nothing visible": (t, s), "bias, visible, lengths": (1, 1, t, s),
    }  # fmt: skip
    shape = shapes.get(kind)
    if shape is not None:
        seen = torch.rand(shape) > (1.0 if kind == "nothing visible" else 0.4)
        if len(shape) == 4 and seen.numel():
            seen[0, 0, shape[2] // 2] = False  # an empty row, where it is one sequence's own
            seen[..., -1 if s > 1 else s :] = seen[..., -1 if s > 1 else s :] & (shape[3] == 1)
        options["visible"] = seen
        visible = visible & seen
    if "bias" in kind:
        shape = {"bias": (b, 1, t, s), "bias of a head": (1, h, t, 1)}.get(kind, (b, h, 1, s))
        bias = torch.randn(shape, dtype=torch.float64)
        if kind == "bias that hides":
            bias = bias.masked_fill(torch.rand(shape) > 0.6, -torch.inf)
            bias[..., -1 if s > 1 else s :] = -torch.inf  # a row hidden from all
    offset = {"top left": 0, "bottom right": s - t, "causal, lengths": -2}.get(kind)
    if offset is not None:
        names = {"top left": "top_left", "bottom right": "bottom_right"}
        options["causal"] = names.get(kind, offset)
        visible = visible & torch.ones(t, s, dtype=torch.bool).tril(offset)
    return lengths, options, visible, bias
