"""Every module that reads a memory, behind one face, so that each law can be asked of each.

    subject.read(module, query, memory) -> output,     subject.remember(module, rows, lengths, form)

Modules with learned queries ignore the query. Sizes differ and are prime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import crossattention as xa
from crossattention.nn import (
    AttentionPool,
    CrossBlock,
    GatedCrossAttention,
    MultiCrossAttention,
    NullRow,
    Perceiver,
    PoolingHead,
    QueryFormer,
    Resampler,
    Sink,
)

M, T, S, WIDTH, HEADS, ROW = 3, 5, 7, 12, 2, 12
LENGTHS = ([7, 2, 5], [1, 7, 3], [4, 0, 7])
FORMS = ("projected", "raw")
SUMMARIES = (Resampler, QueryFormer, Perceiver)


@dataclass(frozen=True)
class Subject:
    """A module and what the laws may expect of it.

    `made` builds it; `empty`: what it gives for a memory without rows: "zero", "query" (the stream
    is unchanged), or None where nothing is promised but that it is finite.
    """

    name: str
    made: Callable[[], nn.Module]
    empty: str | None = "zero"
    forms: tuple[str, ...] = FORMS

    def __str__(self) -> str:
        return self.name

    def build(self, seed: int = 0) -> nn.Module:
        """Build it with weights that leave nothing at its beginning."""
        torch.manual_seed(seed)
        module = self.made().double().eval()
        with torch.no_grad():
            for each in module.parameters():
                each.normal_(std=0.4)
        return module

    def remember(
        self, module: Any, rows: Tensor, lengths: list[int] | None = None, form: str = "projected"
    ) -> Any:
        """Remember rows [m, s, c], which a module that reads several memories reads twice."""
        if isinstance(module, MultiCrossAttention):
            both = (rows, rows[:, ::2]), (lengths, None if lengths is None else _halved(lengths))
            return module.remember(*both, form=form)
        if isinstance(module, PoolingHead):
            return module.pool.attention.remember(rows, lengths, form=form)
        if isinstance(module, AttentionPool):
            return module.attention.remember(rows, lengths, form=form)
        if isinstance(module, SUMMARIES):
            module.form = form
            return module.remember(rows, lengths)
        return module.remember(rows, lengths, form=form)

    def read(self, module: Any, query: Tensor, memory: Any) -> Tensor:
        """Read what was remembered."""
        learned = isinstance(module, (AttentionPool, PoolingHead, *SUMMARIES))
        output: Tensor = module(memory) if learned else module(query, memory)
        return output


def _halved(lengths: list[int]) -> list[int]:
    return [(length + 1) // 2 for length in lengths]


def each(memory: Any, change: Callable[[xa.Memory], xa.Memory]) -> Any:
    """Change a memory, or each of several."""
    return tuple(map(change, memory)) if isinstance(memory, tuple) else change(memory)


def given(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Draw a query [m, t, c] and rows [m, s, c]."""
    torch.manual_seed(seed)
    return torch.randn(M, T, WIDTH).double(), torch.randn(M, S, ROW).double()


def _layer(**options: Any) -> xa.CrossAttention:
    return xa.CrossAttention(WIDTH, HEADS, **options)


def _beside(row: nn.Module) -> xa.CrossAttention:
    layer = _layer(memory_heads=1)
    layer.null_row = row
    return layer


def _multi(combine: str) -> MultiCrossAttention:
    return MultiCrossAttention(WIDTH, HEADS, (ROW, ROW), combine=combine)


SUBJECTS = (
    Subject("CrossAttention", _layer),
    Subject("CrossAttention+Sink", lambda: _beside(Sink(HEADS))),
    Subject("CrossAttention+NullRow", lambda: _beside(NullRow(1, 6, 6)), None),
    Subject("CrossBlock", lambda: CrossBlock(WIDTH, HEADS, 17), None),
    Subject("MultiCrossAttention-joint", lambda: _multi("joint")),
    Subject("MultiCrossAttention-sum", lambda: _multi("sum")),
    Subject("MultiCrossAttention-gate", lambda: _multi("gate")),
    Subject("GatedCrossAttention", lambda: GatedCrossAttention(WIDTH, HEADS), "query"),
    Subject("AttentionPool", lambda: AttentionPool(WIDTH, HEADS, queries=3)),
    Subject("PoolingHead", lambda: PoolingHead(WIDTH, HEADS, 17), None),
    Subject("Resampler", lambda: Resampler(WIDTH, HEADS, queries=3), None),
    Subject("Resampler-shared", lambda: Resampler(WIDTH, HEADS, queries=3, shared=True), None),
    Subject(
        "Resampler-joint", lambda: Resampler(WIDTH, HEADS, queries=3, reads_queries=True), None
    ),
    Subject(
        "QueryFormer", lambda: QueryFormer(WIDTH, HEADS, queries=3, memory_width=ROW, depth=3), None
    ),
    Subject(
        "Perceiver",
        lambda: Perceiver(WIDTH, HEADS, memory_width=ROW, queries=3, reads=3, latent_layers=1),
        None,
    ),
)
PAIRS = [(subject, form) for subject in SUBJECTS for form in subject.forms]
NAMES = [f"{subject}-{form}" for subject, form in PAIRS]
