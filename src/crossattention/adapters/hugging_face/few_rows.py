"""What a decoder maps at every step: few rows, by plain linear layers that read their weights once.

    y = x Wᵀ + b

A step maps one row for each hypothesis, which is most of its time in float32 on a CPU. The layers'
`forward` is taken over on the instance; a call that is anything else goes to the class's own. No
weight is copied, so whatever changes one is seen.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor, nn

from crossattention.adapters.hugging_face.modules import Found
from crossattention.kernels.native.linear import linear, maps_few


class FewRows:
    """The `forward` of one linear layer of an adopted model."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer = weakref.ref(layer)

    def __getstate__(self) -> nn.Linear | None:
        return self.layer()

    def __setstate__(self, layer: nn.Linear) -> None:
        self.__init__(layer)  # type: ignore[misc]

    def _forward(self, rows: Tensor) -> Tensor:
        layer: Any = self.layer()
        if maps_few(rows, layer.weight, layer.bias):
            return linear(rows, layer.weight, layer.bias)
        return nn.Linear.forward(layer, rows)


def take_linears(model: nn.Module, found: Found) -> None:
    """Take over the plain linear layers that are called at every step of a decode."""
    generates: Any = model
    layout = found.family.layout
    once = {*generates.get_encoder().modules()}  # called once for each source
    for module in found.modules(model):
        once |= {getattr(module, layout.key), getattr(module, layout.value)}
    for each in model.modules():
        if type(each) is nn.Linear and each not in once and "forward" not in vars(each):
            vars(each)["forward"] = FewRows(each)._forward


def give_linears_back(model: nn.Module) -> None:
    """Give each linear layer its class's `forward` back, wherever it stands by now."""
    for each in model.modules():
        if isinstance(getattr(vars(each).get("forward"), "__self__", None), FewRows):
            del vars(each)["forward"]
