"""What a whole `generate` remembers of its sources, and how a layer reads it.

    query [m·n, h, t, d] -> [m, h, n·t, d], a view for one step; value [m, h, n·t, e] and back

The n hypotheses of a source are folded into the query axis, so that the memory is met once for
all of them and never copied. Keys carry a mark by which the attention function knows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from crossattention.adapters.hugging_face.families import Layout
from crossattention.adapters.hugging_face.reads import Reads
from crossattention.kernels.contract import Problem, Reading, Score
from crossattention.kernels.matmul import weights
from crossattention.nn.raw import fold_query, map_average

_MARK = "_crossattention_memory"
Read = tuple[Tensor, Tensor | None]


class Remembered(Protocol):
    """A memory in one of its forms, shared by the layers that read it."""

    def read(
        self,
        module: nn.Module,
        query: Tensor,
        content: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        scale: float | None,
    ) -> Read:
        """Read for every hypothesis.

        Args:
            module: the layer's cross-attention.
            query: `[m·n, h, t, d]`, the hypotheses of a source beside each other.
            content: what the layer's cache holds, `[m, g, s, ·]` each.
            attention_mask: transformers' mask `[m, 1, t, s]`: bool, True = may be read, or float,
                0 = may be read; None hides nothing.
            scale: factor on q·k; None is 1/√d.
        Returns:
            value `[m·n, t, h, e]`, and the weights `[m·n, h, t, s]` where maps are wanted.
        """
        ...

    def select(self, memories: Tensor) -> Remembered:
        """Give the same for a choice of memories, integers `[m']`."""
        ...


def mark(key: Tensor, memory: Remembered) -> Tensor:
    """Let a tensor of keys be known as a shared memory's."""
    setattr(key, _MARK, memory)
    return key


def shared(key: Tensor) -> Remembered | None:
    """Give the memory that a tensor of keys belongs to, if it is a shared one.

    >>> import torch
    >>> shared(torch.ones(2)) is None
    True
    """
    found: Remembered | None = getattr(key, _MARK, None)
    return found


@dataclass
class Projected:
    """Keys and values of each layer."""

    reads: Reads

    def read(
        self,
        module: nn.Module,
        query: Tensor,
        content: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        scale: float | None,
    ) -> Read:
        """Read projected keys and values; see `Remembered`."""
        key, value = content
        folded = self.reads.fold(query, key.shape[0])
        score = Score(query.shape[-1] ** -0.5 if scale is None else scale)
        problem = Problem(folded, key, value, None, self.reads.rows(attention_mask), score)
        read = self.reads.run(problem).value
        maps = _unfold(weights(problem), query) if self.reads.maps else None
        return _turn(read, query), maps

    def select(self, memories: Tensor) -> Projected:
        """Give the same for a choice of memories."""
        return Projected(self.reads.select(memories))


@dataclass
class Raw:
    """The rows alone, one copy for all layers; the layer's projections are folded into the read."""

    reads: Reads
    layout: Layout

    def read(
        self,
        module: nn.Module,
        query: Tensor,
        content: tuple[Tensor, Tensor],
        attention_mask: Tensor | None,
        scale: float | None,
    ) -> Read:
        """Read raw rows; see `Remembered`."""
        rows, _ = content
        key: nn.Linear = getattr(module, self.layout.key)
        value: nn.Linear = getattr(module, self.layout.value)
        groups = key.out_features // query.shape[-1]
        score = Score(query.shape[-1] ** -0.5 if scale is None else scale)
        wide = self.reads.fold(fold_query(query, key, groups)[0], rows.shape[0])
        problem = Problem(wide, rows, rows, None, self.reads.rows(attention_mask), score)
        average = Reading(_unfold(self.reads.run(problem).value, query))
        read = map_average(average, value, groups, query.new_ones(()).expand(1, 1, 1))
        maps = _unfold(weights(problem), query) if self.reads.maps else None
        return read.transpose(1, 2), maps  # [b, h, t, e] -> [b, t, h, e]

    def select(self, memories: Tensor) -> Raw:
        """Give the same for a choice of memories."""
        return Raw(self.reads.select(memories), self.layout)


def _unfold(result: Tensor, query: Tensor) -> Tensor:
    """Give each hypothesis its rows back: [m, h, n·t, x] -> [m·n, h, t, x]."""
    b, _, t, _ = query.shape
    m, h, _, x = result.shape
    if b == m:
        return result
    return result.reshape(m, h, b // m, t, x).transpose(1, 2).reshape(b, h, t, x)


def _turn(result: Tensor, query: Tensor) -> Tensor:
    """The same, rows before heads as transformers wants it: [m, h, n·t, e] -> [m·n, t, h, e]."""
    b, _, t, _ = query.shape
    m, h, _, e = result.shape
    if b == m:
        return result.transpose(1, 2)
    return result.reshape(m, h, b // m, t, e).permute(0, 2, 3, 1, 4).reshape(b, t, h, e)
