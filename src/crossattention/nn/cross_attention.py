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

from crossattention.attention.attend import read
from crossattention.attention.door import check_dropout
from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.contract import Kernel, Problem, Score
from crossattention.kernels.matmul import weights
from crossattention.memory import Content, Memory, Stamp
from crossattention.nn import raw
from crossattention.nn.form import choose_form, form_costs
from crossattention.nn.null_row import NullRow
from crossattention.nn.pose import answer, only_heads, pose
from crossattention.nn.stamp import next_number, stamp_of


class CrossAttention(nn.Module):
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
    `output_projection`, `query_norm`, `key_norm` (both `nn.Identity`), `null_row` (None, or a
    `NullRow`). Attributes: `scale` (d^-½), `softcap` (None), `kernel` ("auto").

    Projection weights start Xavier-uniform and biases at 0.

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
        self.width, self.heads = width, heads
        self.memory_heads = heads if memory_heads is None else memory_heads
        _check_sizes(width, heads, self.memory_heads, key_width)
        self.key_width = width // heads if key_width is None else key_width
        self.value_width = self.key_width if value_width is None else value_width
        widths = (memory_width,) * 2 if not isinstance(memory_width, tuple) else memory_width
        self.memory_widths = tuple(width if each is None else each for each in widths)
        self.dropout = check_dropout(dropout)
        self.scale, self.softcap = self.key_width**-0.5, None
        self.kernel: str | Kernel = "auto"
        keys, values = self.memory_heads * self.key_width, self.memory_heads * self.value_width
        self.query_projection: nn.Module = nn.Linear(width, heads * self.key_width, bias)
        self.key_projection: nn.Module = nn.Linear(self.memory_widths[0], keys, bias)
        self.value_projection: nn.Module = nn.Linear(self.memory_widths[1], values, bias)
        self.output_projection: nn.Module = nn.Linear(heads * self.value_width, width, bias)
        self.query_norm: nn.Module = nn.Identity()
        self.key_norm: nn.Module = nn.Identity()
        self.null_row: NullRow | None = None
        self.number = next_number()
        _initialise(self)

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
            ContractError: shapes, or a form that the layer cannot take, with the reasons.

        >>> layer = CrossAttention(8, 2)
        >>> layer.remember(torch.randn(1, 5, 8), queries=1).contents[layer.number].key is None
        True
        """
        memory = rows if isinstance(rows, Memory) else Memory.of(rows, lengths, value_rows)
        key_rows = memory.rows
        if key_rows is None:
            do = "make the memory from rows again"
            raise ContractError(complaint("rows", "still there", "a memory without rows", do))
        other_rows = key_rows if memory.value_rows is None else memory.value_rows
        for name, given, width in (
            ("rows", key_rows, self.memory_widths[0]), ("value_rows", other_rows, self.memory_widths[1])
        ):  # fmt: skip
            if given.shape[-1] != width:
                want = f"of width {width}, the layer's memory_width"
                raise ContractError(complaint(name, want, f"shape {list(given.shape)}",
                                              "check which stream is read"))  # fmt: skip
        stamp = self._stamp()
        refused = raw.refusals(self.key_projection, self.value_projection, self.key_norm)
        costs = form_costs(
            memory.size[1] * self.width if queries is None else queries, memory.size[1],
            (self.heads, self.memory_heads), (self.key_width, self.value_width), self.memory_widths,
        )  # fmt: skip
        if choose_form(form, costs, refused) == "raw":
            return memory.written(self.number, Content(stamp))
        key = self.key_norm(self._split(self.key_projection(key_rows), self.memory_heads))
        value = self._split(self.value_projection(other_rows), self.memory_heads)
        if not torch.is_grad_enabled():  # many reads lie ahead: let each find its rows in order
            key, value = key.contiguous(), value.contiguous()
        return memory.written(self.number, Content(stamp, key, value))

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
            memory: a Memory from `remember`, or rows `[b, s, c_k]` to read once.
            visible: bool, each axis of `[b, h, t, s]` full or 1, or `[t, s]`; True = may be read.
            bias: float of the same shapes, added to the scores.
        Returns:
            `[b, t, c]`; exactly 0 for a row that may read nothing in any head.
        Raises:
            ContractError: shapes, or a memory that is foreign or stale.
        """
        problem, content, projected = self._pose(query, memory, visible, bias)
        value = self._read(problem, content, projected)
        output: Tensor = self.output_projection(value.transpose(1, 2).flatten(2))
        reads = problem.mask.reads
        if reads is None or self.null_row is not None:
            return output
        return output.masked_fill(~reads.any(1), 0)  # [b|1, h|1, t|1, 1] -> [b|1, t|1, 1]

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

        Arguments as in `forward`, whose output they never change; `heads` keeps some heads only.
        Rows sum to 1, to 0 where empty, and to what the null row leaves where there is one.

        >>> layer = CrossAttention(8, 2)
        >>> layer.weights(torch.randn(1, 3, 8), torch.randn(1, 5, 8)).shape
        torch.Size([1, 2, 3, 5])
        """
        problem, _, projected = self._pose(query, memory, visible, bias)
        if self.null_row is None:
            return weights(problem if heads is None else only_heads(problem, heads))
        lse = read(replace(problem, wants_lse=True), self.kernel).lse_or_raise()
        whole = torch.logaddexp(lse, self.null_row.score(projected, self.scale, self.softcap))
        shown = weights(problem) * (lse - whole).exp()[..., None]
        return shown if heads is None else shown[:, list(heads)]

    def extra_repr(self) -> str:
        """Name the sizes when the layer is printed."""
        sizes = f"width={self.width}, heads={self.heads}, memory_heads={self.memory_heads}"
        return f"{sizes}, key_width={self.key_width}, value_width={self.value_width}"

    def _pose(
        self, query: Tensor, memory: Tensor | Memory, visible: Tensor | None, bias: Tensor | None
    ) -> tuple[Problem, Content, Tensor]:
        if query.dim() != 3 or query.shape[-1] != self.width:
            do = "project the stream to the layer's width first"
            want = f"[b, t, {self.width}]"
            raise ContractError(complaint("query", want, f"shape {list(query.shape)}", do))
        if not isinstance(memory, Memory):
            memory = self.remember(memory, queries=query.shape[1])
        content = memory.content(self.number, self._stamp())
        projected = self.query_norm(self._split(self.query_projection(query), self.heads))
        score = Score(self.scale, self.softcap)
        posed = pose(projected, memory, content, self.key_projection, score, visible, bias)
        return replace(posed, dropout=self.dropout if self.training else 0.0), content, projected

    def _read(self, problem: Problem, content: Content, projected: Tensor) -> Tensor:
        """Compute the heads' values, [b, h, t, e]."""
        wants_lse = self.null_row is not None
        reading = read(replace(problem, wants_lse=wants_lse), self.kernel)
        value = answer(reading, problem, content, self.value_projection, self.memory_heads)
        if self.null_row is None:
            return value
        parts = (value, reading.lse_or_raise())
        merged: Tensor = self.null_row(projected, parts, self.scale, self.softcap)[0]
        return merged

    def _stamp(self) -> Stamp:
        return stamp_of(self.key_projection, self.value_projection, self.key_norm)

    def _split(self, stream: Tensor, heads: int) -> Tensor:
        return stream.unflatten(-1, (heads, -1)).transpose(1, 2)  # [b, t, h·d] -> [b, h, t, d]


def _initialise(layer: CrossAttention) -> None:
    for module in layer.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def _check_sizes(width: int, heads: int, memory_heads: int, key_width: int | None) -> None:
    if heads < 1 or memory_heads < 1 or heads % memory_heads:
        given = f"{heads} heads over {memory_heads} memory heads"
        do = "each memory head serves the same number of query heads"
        raise ContractError(complaint("heads", "a multiple of memory_heads", given, do))
    if key_width is None and width % heads:
        given = f"width {width} over {heads} heads"
        raise ContractError(complaint("width", "a multiple of heads", given, "or pass key_width"))
