"""Cross-attention: one stream asks, another is read.

    output = W_o · attend(W_q x, W_k m, W_v m)

The memory is projected once, by `remember`, and read as often as needed; a query row that may read
nothing adds exactly nothing, not even the output projection's bias. Paper: Vaswani et al. 2017,
"Attention Is All You Need", section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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
from crossattention.nn.form import choose_form, form_costs, rows_of
from crossattention.nn.initialise import initialise
from crossattention.nn.null_row import NullRow, with_null_row
from crossattention.nn.pose import answer, check_heads, only_heads, pose
from crossattention.nn.project import check_stream, finish, heads_of, map_rows
from crossattention.nn.sizes import Sizes
from crossattention.nn.stamp import Numbered, stamp_of


class CrossAttention(Numbered):
    """Read a memory with several heads: W_o · concat_h softmax(q_h·k_h · d^-½) v_h.

    Args:
        width: c, of the query stream and of the output.
        heads: h.
        memory_width: width of the memory's rows, or (key rows, value rows) where they differ;
            None: `width`.
        key_width: d, the width of one head's queries and keys; None: width // heads.
        value_width: e, the width of one head's values; None: `key_width`.
        memory_heads: g, key and value heads, which h is a multiple of; None: h.
        bias: whether the four projections have one.
        dropout: probability that a weight is dropped in training.

    Submodules that may be replaced: `query_projection`, `key_projection`, `value_projection`,
    `output_projection` (Xavier-uniform, biases 0), `query_norm`, `key_norm` (`nn.Identity`),
    `null_row` (None). Attributes that may be set: `scale` (d^-½), `softcap` (None), `kernel`.

    Differs from `torch.nn.MultiheadAttention`: masks say what is visible; the memory can be kept;
    maps never change the path; an empty row is unchanged by the layer instead of NaN.

    >>> layer = CrossAttention(width=8, heads=2, memory_width=6)
    >>> memory = layer.remember(torch.randn(1, 5, 6), lengths=[4])
    >>> layer(torch.randn(1, 3, 8), memory).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        memory_width: int | tuple[int, int] | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        memory_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        head_widths = (key_width, value_width)
        self.sizes = sizes = Sizes.of(width, heads, memory_width, head_widths, memory_heads)
        self.dropout = check_dropout(dropout)
        check_flag("bias", bias, "choose whether the projections have one")
        self.scale: float = sizes.key_width**-0.5
        self.softcap: float | None = None
        self.kernel: str | Kernel = "auto"
        d, e, g = sizes.key_width, sizes.value_width, sizes.memory_heads
        self.query_projection: nn.Module = nn.Linear(width, heads * d, bias)
        self.key_projection: nn.Module = nn.Linear(sizes.memory_widths[0], g * d, bias)
        self.value_projection: nn.Module = nn.Linear(sizes.memory_widths[1], g * e, bias)
        self.output_projection: nn.Module = nn.Linear(heads * e, width, bias)
        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        self.null_row: NullRow | None = None
        initialise(self)

    def remember(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        value_rows: Tensor | None = None,
        queries: int | None = None,
        form: str = "auto",
    ) -> Memory:
        """Prepare a memory for reading, once.

        Args:
            rows: `[m, s, c_k]`, or a Memory in which other layers have written already.
            lengths: integers `[m]`, the real rows of each memory; the rest may hold anything.
            value_rows: `[m, s, c_v]`, where values come from other rows than keys.
            queries: how many query rows will read each memory over its life (steps x beams);
                None expects many.
            form: "projected" keeps this layer's keys and values; "raw" keeps nothing but the
                rows; "auto" takes what is cheaper over the memory's life.
        Raises:
            ContractError: shapes, rows written to since, a form that the layer cannot take.

        >>> layer = CrossAttention(8, 2)
        >>> layer.remember(torch.randn(1, 5, 8), queries=1).contents[layer.number].key is None
        True
        """
        memory = Memory.of(rows, lengths, value_rows)
        maps, normed = (self.key_projection, self.value_projection), self.key_norm
        key_rows, other_rows = rows_of(memory, self.sizes, *maps)
        refused = raw.refusals(*maps, normed)
        costs = form_costs(queries, memory.size[1], self.sizes)
        if choose_form(form, costs, refused) == "raw":
            return memory.written(self.number, Content(self._stamp()))
        g, d, e = self.sizes.memory_heads, self.sizes.key_width, self.sizes.value_width
        key = map_rows(lambda x: normed(heads_of("key_projection", maps[0](x), g, d)), key_rows)
        value = map_rows(lambda x: heads_of("value_projection", maps[1](x), g, e), other_rows)
        if not torch.is_grad_enabled():  # many reads lie ahead
            key, value = key.contiguous(), value.contiguous()
        return memory.written(self.number, Content(self._stamp(), key, value))

    def forward(
        self,
        query: Tensor,
        memory: Tensor | Memory,
        *,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Read.

        Args:
            query: `[b, t, c]`.
            memory: a Memory from `remember` (neither foreign nor stale), or rows `[b, s, c_k]`.
            visible: bool, each axis of `[b, h, t, s]` full or 1, or `[t, s]`; True = may be read.
            bias: float of the same shapes, added to the scores.
        Returns:
            `[b, t, c]`; exactly 0 for a row that may read nothing in any head.
        """
        problem, content, projected = self._pose(query, memory, visible, bias)
        value = self._read(problem, content, projected)
        reads = problem.mask.reads if self.null_row is None else None
        merged = value.transpose(1, 2).flatten(2)  # [b, h, t, e] -> [b, t, h·e]
        return finish(merged, self.output_projection, reads)

    def weights(
        self,
        query: Tensor,
        memory: Tensor | Memory,
        *,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        """Show what each query row reads: the weights [b, h, t, s] before dropout.

        Arguments as in `forward`; `heads` keeps some heads only. Rows sum to 1, to 0 where empty,
        and to what the null row leaves where there is one.
        """
        problem, _, projected = self._pose(query, memory, visible, bias)
        kept = None if heads is None else check_heads(heads, self.sizes.heads)
        if self.null_row is None:
            return weights(problem if kept is None else only_heads(problem, kept))
        undropped, score = replace(problem, wants_lse=True, dropout=0.0), problem.score
        lse = read(undropped, self.kernel).lse_or_raise()
        left = self.null_row.leaves(projected, lse, score.scale, score.softcap)[..., None]
        return (weights(problem) * left)[:, slice(None) if kept is None else kept]

    def _pose(
        self, query: Tensor, memory: Tensor | Memory, visible: Tensor | None, bias: Tensor | None
    ) -> tuple[Problem, Content, Tensor]:
        check_stream("query", query, self.sizes.width, self.query_projection)
        if not isinstance(memory, Memory):
            memory = self.remember(memory, queries=query.shape[1])
        content = memory.content(self.number, self._stamp())
        h, d = self.sizes.heads, self.sizes.key_width
        projected = heads_of("query_projection", self.query_projection(query), h, d)
        projected = self.query_norm(projected)
        score = Score(check_scale(self.scale, d), check_softcap(self.softcap))
        posed = pose(projected, memory, content, self.key_projection, score, visible, bias)
        dropout = check_dropout(self.dropout)
        return replace(posed, dropout=dropout if self.training else 0.0), content, projected

    def _read(self, problem: Problem, content: Content, projected: Tensor) -> Tensor:
        reading = read(replace(problem, wants_lse=self.null_row is not None), self.kernel)
        value = answer(reading, problem, content, self.value_projection, self.sizes.memory_heads)
        return with_null_row(self.null_row, projected, value, reading, problem.score)

    def _stamp(self) -> Stamp:
        return stamp_of(self.key_projection, self.value_projection, self.key_norm)
