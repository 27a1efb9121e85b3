"""A reader: what the heads of one layer keep of a memory, and how projected queries read it.

    value[b, h, t] = softmax(scale · q·(W_k m)) (W_v m)

The memory's side of cross-attention, without the query's: layers that read one memory or several
are made of readers. It is projected once, by `remember`, and read as often as needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crossattention.argument import check_flag
from crossattention.attention.attend import read
from crossattention.attention.door import check_dropout, check_scale, check_softcap
from crossattention.content import Content, Stamp
from crossattention.kernels.contract import Kernel, Problem, Score
from crossattention.kernels.matmul import weights
from crossattention.memory import Memory
from crossattention.nn import raw
from crossattention.nn.form import Life, choose_form, form_costs, rows_of
from crossattention.nn.null_row import NullRow
from crossattention.nn.pose import HeadsRead, answer, check_heads, only_heads, pose
from crossattention.nn.project import map_heads
from crossattention.nn.rotary import Rotary
from crossattention.nn.sink import Sink, check_null_row
from crossattention.nn.sizes import Sizes
from crossattention.nn.stamp import Numbered, stamp_of
from crossattention.nn.turn import check_positions, turned


class Reader(Numbered):
    """Keep keys and values of a memory, and read them; see `CrossAttention` for what may be set.

    Args:
        sizes: of the layer.
        bias: whether the projections have one.
        dropout: probability that a weight is dropped in training.

    >>> reader = Reader(Sizes.of(8, 2, 6, (None, None), None), bias=True, dropout=0.0)
    >>> memory = reader.remember(torch.randn(1, 5, 6), lengths=[4])
    >>> reader.read(torch.randn(1, 2, 3, 4), memory).value.shape
    torch.Size([1, 2, 3, 4])
    """

    def __init__(self, sizes: Sizes, bias: bool, dropout: float) -> None:
        super().__init__()
        self.sizes = sizes
        self.dropout = check_dropout(dropout)
        check_flag("bias", bias, "choose whether the projections have one")
        self.scale: float = sizes.key_width**-0.5
        self.softcap: float | None = None
        self.kernel: str | Kernel = "auto"
        d, e, g = sizes.key_width, sizes.value_width, sizes.memory_heads
        self.key_projection: nn.Module = nn.Linear(sizes.memory_widths[0], g * d, bias)
        self.value_projection: nn.Module = nn.Linear(sizes.memory_widths[1], g * e, bias)
        self.key_norm: nn.Module = nn.Identity()
        self.null_row: NullRow | Sink | None = None
        self.rotary: Rotary | None = None

    def remember(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        value_rows: Tensor | None = None,
        positions: Tensor | None = None,
        queries: int | None = None,
        reads: int | None = None,
        form: str = "auto",
    ) -> Memory:
        """Prepare a memory for reading, once; after `append` or `replace`, for what is new.

        Args:
            rows: `[m, s, c_k]`, or a Memory in which layers have written already.
            lengths: integers `[m]`, the real rows of each memory; the rest may hold anything.
            value_rows: `[m, s, c_v]`, where values come from other rows than keys.
            positions: `[m|1, s]` or `[s]`, where all rows stand; for a layer with `rotary`.
            queries: how many query rows will read each memory over its life (steps x beams);
                None expects many.
            reads: how many reads they come in; None: one row a read, as in a decoder's steps.
            form: "projected" keeps this layer's keys and values; "raw" keeps nothing but the
                rows; "auto" takes what is less work over the memory's life.
        Raises:
            ContractError: shapes, rows written to since, a form that the layer cannot take.

        >>> reader = Reader(Sizes.of(64, 2, None, (None, None), None), bias=True, dropout=0.0)
        >>> reader.remember(torch.randn(1, 999, 64), queries=1).contents[reader.number].key is None
        True
        """
        memory = Memory.of(rows, lengths, value_rows)
        life = Life(*memory.size, queries, reads)
        return self._prepared(memory, life, form, positions, self._stamp())

    def at_once(self, memory: Memory, queries: int, form: str = "auto") -> Memory:
        """Prepare a memory that is read at once and never again: nothing changes before."""
        return self._prepared(memory, Life(*memory.size, queries, 1), form, None, ())

    def read(
        self,
        query: Tensor,
        memory: Memory,
        *,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        wants_lse: bool = False,
        fold: raw.Fold = raw.fold_query,
    ) -> HeadsRead:
        """Read a memory with projected queries.

        Args:
            query: `[b, h, t, d]`, projected, normed and, where the layer has `rotary`, turned.
            memory: a Memory from `remember`, neither foreign nor stale.
            visible, bias: as in `CrossAttention.forward`.
            wants_lse: whether the log-sum-exp is needed, to merge with what others read.
            fold: how the query is folded in the raw form.
        """
        problem, content = self._pose(query, memory, visible, bias, fold)
        row, score = self.null_row, problem.score
        if wants_lse or row is not None:
            problem = problem._replace(wants_lse=True)
        found = read(problem, self.kernel)
        value = answer(found, problem, content, self.value_projection, self.sizes.memory_heads)
        if row is None:
            return HeadsRead(value, found.lse, problem.mask.reads)
        value, lse = row(query, (value, found.lse_or_raise()), score.scale, score.softcap)
        return HeadsRead(value, lse, None if row.always_read else problem.mask.reads)

    def weights_of(
        self,
        query: Tensor,
        memory: Memory,
        *,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        """Show the weights [b, h, t, s] of projected queries, before dropout."""
        problem, _ = self._pose(query, memory, visible, bias)
        kept = None if heads is None else check_heads(heads, self.sizes.heads)
        row, score = self.null_row, problem.score
        if row is None:
            return weights(problem if kept is None else only_heads(problem, kept))
        lse = read(problem._replace(wants_lse=True, dropout=0.0), self.kernel).lse_or_raise()
        left = row.leaves(query, lse, score.scale, score.softcap)[..., None]
        shown: Tensor = (weights(problem) * left)[:, slice(None) if kept is None else kept]
        return shown

    def _prepared(
        self, memory: Memory, life: Life, form: str, positions: Tensor | None, stamp: Stamp
    ) -> Memory:
        maps = (self.key_projection, self.value_projection)
        sources = rows_of(memory, self.sizes, *maps)
        refused = raw.refusals(*maps, self.key_norm, self.rotary)
        costs = form_costs(life._replace(dtype=sources[0].dtype), self.sizes)
        check_positions(self.rotary, positions, "the memory")
        if choose_form(form, costs, refused) == "raw":
            return memory.written(self.number, Content(stamp))
        done = memory.contents.get(self.number)
        begun = 0 if done is None else done.begun(stamp, memory.size[1])
        if begun:
            sources = sources[0][:, begun:], sources[1][:, begun:]
            positions = None if positions is None else positions[..., begun:]
        key, value = self._project(*sources, positions)
        grown = done.extended(key, value) if done and begun else Content.of(stamp, key, value)
        return memory.written(self.number, grown)

    def _project(self, rows: Tensor, other: Tensor, at: Tensor | None) -> tuple[Tensor, Tensor]:
        g, d, e = self.sizes.memory_heads, self.sizes.key_width, self.sizes.value_width
        key = map_heads("key_projection", self.key_projection, rows, g, d, self.key_norm)
        key = turned(self.rotary, key, at, "the memory")
        value = map_heads("value_projection", self.value_projection, other, g, e)
        if not torch.is_grad_enabled():  # many reads lie ahead
            return key.contiguous(), value.contiguous()
        return key, value

    def _pose(
        self,
        query: Tensor,
        memory: Memory,
        visible: Tensor | None,
        bias: Tensor | None,
        fold: raw.Fold = raw.fold_query,
    ) -> tuple[Problem, Content]:
        check_null_row(self.null_row)
        found = memory.contents.get(self.number)
        stamp = self._stamp() if found is None or found.stamp else ()  # none where read at once
        content = memory.holding.content(self.number, stamp)
        score = Score(check_scale(self.scale, query.shape[-1]), check_softcap(self.softcap))
        posed = pose(query, memory, content, self.key_projection, score, visible, bias, fold)
        dropout = check_dropout(self.dropout) * self.training
        return posed._replace(dropout=dropout) if dropout else posed, content

    def _stamp(self) -> Stamp:
        rotary = () if self.rotary is None else (self.rotary,)
        return stamp_of(self.key_projection, self.value_projection, self.key_norm, *rotary)
