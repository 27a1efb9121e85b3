"""Adopt whatever known modules a model contains, and leave the rest of it alone.

Each kind of module is a part. All are checked before the first is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from crossattention.adapters.contract import Decode, ModelExplanation
from crossattention.adapters.parts.contract import Part
from crossattention.adapters.parts.decoder import Decoder
from crossattention.adapters.parts.denoising import DenoisingAttention
from crossattention.adapters.parts.idefics2 import Idefics2Resampler
from crossattention.adapters.parts.latent_pool import LatentPool
from crossattention.adapters.parts.multihead import Multihead
from crossattention.adapters.parts.perceiver import PerceiverAttention
from crossattention.adapters.parts.q_former import QFormerAttention
from crossattention.adapters.parts.siglip import SiglipPooling
from crossattention.adapters.parts.whisper import WhisperAttention
from crossattention.adapters.parts.whisper_decode import WhisperDecode
from crossattention.errors import ContractError, complaint, describe

PARTS: tuple[Part, ...] = (
    SiglipPooling(),
    LatentPool(),
    QFormerAttention(),
    Idefics2Resampler(),
    PerceiverAttention(),
    WhisperDecode(),
    WhisperAttention(),
    DenoisingAttention(),
    Decoder(),
    Multihead(),
)


class Parts:
    """Adopt the modules of a model that are of a known kind.

    >>> Parts().knows(nn.Sequential(nn.MultiheadAttention(8, 2))), Parts().knows(nn.Linear(2, 2))
    (True, False)
    """

    kinds = tuple(dict.fromkeys(part.kind for part in PARTS))

    def knows(self, model: nn.Module) -> bool:
        """Whether there is at least one of them."""
        return any(True for _ in parts_of(model))

    def adopt(self, model: nn.Module, form: str) -> PartsAdoption:
        """Adopt each of them.

        Raises:
            ContractError: one of them cannot be adopted; then none has been.
        """
        found = list(parts_of(model))
        for module, part in found:
            part.check(module, form)
        for module, part in found:
            part.adopt(module, form)
        return PartsAdoption()

    def explain(self, model: nn.Module, decode: Decode) -> ModelExplanation:
        """Refuse: what a module costs depends on who calls it, and how often.

        Raises:
            ContractError: always.
        """
        want = "a model with a `generate` of its own"
        do = "see `crossattention.explain` for one read"
        raise ContractError(complaint("model", want, describe(model), do))


@dataclass(frozen=True)
class PartsAdoption:
    """The record that a model's parts were adopted.

    >>> PartsAdoption().undo(nn.Linear(2, 2))
    """

    def undo(self, model: nn.Module) -> None:
        """Give each of them back what it had."""
        for module in model.modules():
            for part in PARTS:
                if part.knows(module):
                    part.release(module)


def parts_of(model: nn.Module) -> Iterator[tuple[nn.Module, Part]]:
    """Find the known modules of a model, outermost first, each once.

    >>> [part.kind for _, part in parts_of(nn.Sequential(nn.MultiheadAttention(8, 2)))]
    ['torch.nn.MultiheadAttention']
    """
    yield from _found(model, set())


def _found(module: nn.Module, seen: set[int]) -> Iterator[tuple[nn.Module, Part]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    part = next((each for each in PARTS if each.knows(module)), None)
    if part is not None:
        yield module, part
    for child in () if part is not None and part.whole else module.children():
        yield from _found(child, seen)
