"""Remember the sources of one `generate`: once each, in the form that is cheaper to read.

Every layer's projections are called on the encoder's output before it is repeated for beams; or,
in the raw form, its rows are kept as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from crossattention.adapters.hugging_face.modules import Found
from crossattention.adapters.hugging_face.reads import Reads
from crossattention.adapters.hugging_face.remembered import Projected, Raw, mark
from crossattention.nn.form import Life, choose_form, form_costs
from crossattention.nn.raw import refusals
from crossattention.nn.sizes import Sizes

Content = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Expected:
    """What is known of a decode before it begins.

    Attributes:
        form: "auto", "projected" or "raw".
        queries: at most so many query rows will read each memory.
        reads: in so many steps.
        maps: whether attention weights are asked for.
    """

    form: str
    queries: int
    reads: int
    maps: bool


def remember(model: nn.Module, found: Found, rows: Tensor, expected: Expected) -> Content:
    """Fill every layer's memory.

    Args:
        model: an adopted model.
        found: its cross-attention modules.
        rows: `[m, s, c]`, the encoder's output, one for each source.
        expected: the decode to come.
    Returns:
        A pair `[m, g, s, ·]` for each layer, its keys marked as shared.
    Raises:
        ContractError: the raw form was asked for, and a layer refuses it.
    """
    modules = found.modules(model)
    rows = _joined(model, rows)
    life = Life(rows.shape[0], rows.shape[1], expected.queries, expected.reads)
    costs = form_costs(life, sizes_of(modules[0], found))
    reasons = raw_refusals(modules, found, rows)
    reads = Reads(expected.maps)
    half = expected.form == "auto" and rows.element_size() < 4  # folding would round once more
    form = "projected" if half else choose_form(expected.form, costs, reasons)
    if form == "raw":
        one = mark(rows[:, None], Raw(reads, found.family.layout))  # [m, s, c] -> [m, 1, s, c]
        return [(one, one) for _ in modules]
    memory = Projected(reads)
    return [
        (mark(key, memory), value)
        for key, value in (project(module, found, rows) for module in modules)
    ]


def raw_refusals(modules: list[nn.Module], found: Found, rows: Tensor | None) -> list[str]:
    """List, in words, why these layers cannot read raw rows; none twice."""
    layout, plain = found.family.layout, nn.Identity()
    reasons: dict[str, None] = {}
    for module in modules:
        key, value = getattr(module, layout.key), getattr(module, layout.value)
        reasons |= dict.fromkeys(refusals(key, value, plain, None))
        devices = {each.device for each in module.parameters()}
        if rows is not None and devices != {rows.device}:
            reasons["layers lie on several devices"] = None
        elif rows is not None and rows.dtype != next(module.parameters()).dtype:
            reasons["the encoder's output has another dtype than the layers"] = None
    if rows is not None and torch.is_autocast_enabled(rows.device.type):
        reasons["autocast rounds what is folded"] = None
    return list(reasons)


def sizes_of(module: nn.Module, found: Found) -> Sizes:
    """Read a layer's sizes off its projections; all layers of a model are alike."""
    layout = found.family.layout
    query, key = getattr(module, layout.query), getattr(module, layout.key)
    width = int(getattr(module, layout.width))
    heads, groups = query.out_features // width, key.out_features // width
    return Sizes.of(query.in_features, heads, key.in_features, (width, width), groups)


def project(module: nn.Module, found: Found, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Call a layer's projections and split by heads: [m, s, c] -> [m, g, s, d] each."""
    layout, (m, s, _) = found.family.layout, rows.shape
    width = int(getattr(module, layout.width))
    key: Tensor = getattr(module, layout.key)(rows)
    value: Tensor = getattr(module, layout.value)(rows)
    return (
        key.view(m, s, -1, width).transpose(1, 2).contiguous(),
        value.view(m, s, -1, width).transpose(1, 2).contiguous(),
    )


def _joined(model: nn.Module, rows: Tensor) -> Tensor:
    """Apply what stands between the encoder and the decoder of a model that joins two."""
    bridge = getattr(model, "enc_to_dec_proj", None)
    projected: Tensor = rows if bridge is None else bridge(rows)
    return projected
