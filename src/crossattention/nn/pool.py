"""Attention pooling: one or a few learned queries read any number of rows.

    pooled[b, n] = W_o · attend(W_q p[n], W_k x[b], W_v x[b])

The queries p are the same for every input, so they are projected once for a whole batch; and where
gradients are off, p folded through both projections, W_kᵀ W_q p, is kept until a weight changes.
Papers: Lee et al. 2019, "Set Transformer" (pooling by multi-head attention); Zhai et al. 2022,
"Scaling Vision Transformers" (the head of image encoders).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

from torch import Tensor, nn

from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn import raw
from crossattention.nn.at_once import Plan, plan_at_once, traits_at_once
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.kept import Kept, state_of
from crossattention.nn.learned import LearnedQueries
from crossattention.nn.project import finish


class AttentionPool(nn.Module):
    """Read rows of any number with n learned queries: [b, s, c_m] -> [b, n, c].

    Args:
        width: c, of the queries and of the output.
        heads: h.
        queries: n.
        memory_width: c_m, of the rows; None: `width`.
        bias: whether the four projections have one.
        dropout: probability that a weight is dropped in training.

    Submodules: `queries` (`LearnedQueries`) and `attention` (`CrossAttention`); whatever may be
    replaced or set in these may be replaced or set here. Attribute `form`: "auto" takes what is
    cheaper for rows that are read once, by n queries; "raw" and "projected" are always taken.

    What is kept between calls is no part of `state_dict`, copies or pickles. Writes through
    `.data`, and to weights made in inference mode, leave no trace in torch and are not seen.

    Differs from `torch.nn.MultiheadAttention` with a repeated query: queries are projected once
    and not b times, rows are not projected where that costs more, and an empty input gives 0.
    Differs from the Set Transformer's block: the reading alone, without residual, norms and
    feed-forward.

    >>> import torch
    >>> pool = AttentionPool(width=8, heads=2, queries=3, memory_width=6)
    >>> pool(torch.randn(2, 5, 6), lengths=[5, 0]).shape
    torch.Size([2, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        queries: int = 1,
        memory_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.queries: nn.Module = LearnedQueries(queries, width)
        self.attention = CrossAttention(
            width, heads, memory_width=memory_width, bias=bias, dropout=dropout
        )
        self.form = "auto"
        self._asked = Kept[Tensor]()
        self._folded = Kept[raw.Folding]()
        self._planned = Kept[Plan | None]()

    def forward(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Pool.

        Args:
            rows: `[b, s, c_m]`, or a Memory; one that `attention` has remembered is read in the
                form that it has.
            lengths: integers `[b]`, the real rows of each sequence; the rest may hold anything.
            visible: bool, each axis of `[b, h, n, s]` full or 1, or `[n, s]`; True = may be read.
        Returns:
            `[b, n, c]`; exactly 0 where nothing may be read.
        Raises:
            ContractError: shapes, lengths beside a Memory, a stale Memory.

        >>> import torch
        >>> pool = AttentionPool(8, 2)
        >>> pool(torch.full((1, 2, 8), torch.nan), lengths=[0]).unique()
        tensor([0.], grad_fn=<Unique2Backward0>)
        """
        attention = self.attention
        if type(attention) is not CrossAttention or raw.is_watched(attention):
            # What its call does besides is unknown here, so it is called.
            count: int = self.queries(1).shape[1]
            memory = self._remembered(rows, lengths, count)
            output: Tensor = attention(self.queries(memory.sequences), memory, visible=visible)
            return output
        state = self._state()
        asked, fold, found = self._ask(state), partial(self._fold, state), None
        if isinstance(rows, Tensor) and lengths is None and visible is None:
            plan = self._plan(state, asked, rows, fold)
            found = None if plan is None else plan.read(attention, rows)
        if found is None:
            memory = self._remembered(rows, lengths, asked.shape[2])
            asked = asked.expand(memory.sequences, -1, -1, -1)
            found = attention.read(asked, memory, visible=visible, fold=fold)
        merged = found.value.transpose(1, 2).flatten(2)  # [b, h, n, e] -> [b, n, h·e]
        return finish(merged, attention.output_projection, found.reads)

    def weights(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        visible: Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        """Show what each query reads: the weights [b, h, n, s] before dropout.

        Arguments as in `forward`; `heads` keeps some heads only. Rows sum to 1, or to 0 where
        nothing may be read.

        >>> import torch
        >>> AttentionPool(8, 2).weights(torch.randn(1, 5, 8)).shape
        torch.Size([1, 2, 1, 5])
        """
        asked = self._ask(self._state())
        memory = self._remembered(rows, lengths, asked.shape[2])
        asked = asked.expand(memory.sequences, -1, -1, -1)
        return self.attention.weights_of(asked, memory, visible=visible, heads=heads)

    def _remembered(
        self, rows: Tensor | Memory, lengths: Tensor | Sequence[int] | None, count: int
    ) -> Memory:
        memory, attention = Memory.of(rows, lengths), self.attention
        if attention.number in memory.contents:
            return memory
        return attention.at_once(memory, count, self.form)

    def _state(self) -> Hashable | None:
        """What the projected queries hang on, folded ones included."""
        read = self.attention
        asking = [self.queries, read.query_projection, read.query_norm]
        return state_of([*asking, read.key_projection, read.key_norm])

    def _plan(
        self, state: Hashable | None, asked: Tensor, rows: Tensor, fold: raw.Fold
    ) -> Plan | None:
        """Plan how rows are read at once; None where it takes a memory."""
        traits = None if state is None else traits_at_once(self.attention, rows)
        known = None if traits is None else (state, traits, self.form)
        plan = partial(plan_at_once, self.attention, asked, rows, self.form, fold, bool(known))
        return self._planned.of(known, plan)

    def _ask(self, state: Hashable | None) -> Tensor:
        """Project the queries, once for all sequences: [n, c] -> [1, h, n, d]."""

        def ask() -> Tensor:
            rows = self.queries(1)
            asked = self.attention.ask(rows)  # [1, n, c] -> [1, h, n, d]
            if asked.shape[0] != 1:
                want, do = "a module that gives rows [1, n, c] for a batch of 1", "replace it"
                raise ContractError(complaint("queries", want, describe(rows), do))
            return asked

        return self._asked.of(state, ask)

    def _fold(
        self, state: Hashable | None, asked: Tensor, key: raw.Linear, memory_heads: int
    ) -> raw.Folding:
        """Fold the query of one sequence for all of them, as `raw.fold_query` would each."""
        b, one = asked.shape[0], asked[:1]
        if b == 0:
            return raw.fold_query(asked, key, memory_heads)
        fold = partial(raw.fold_query, one, key, memory_heads)
        folded, offset = self._folded.of(state, fold)
        shared = folded.expand(b, -1, -1, -1)  # [1, h, n, c] -> [b, h, n, c]
        return shared, None if offset is None else offset.expand(b, -1, -1, -1)
