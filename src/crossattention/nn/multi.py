"""Read several memories at once, each with its own width, lengths and projections.

    sum      W_o · sum_i amount_i · read_i
    gate     W_o · (read_0 + sum_i tanh(gate_i) · read_i),  gates from 0
    joint    W_o · what one softmax over the rows of all reads, by parts and merged exactly

Papers: Ye et al. 2023, "IP-Adapter" (sum); Zhang et al. 2023, "LLaMA-Adapter" (gates from 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn import combine as parts
from crossattention.nn.initialise import initialise
from crossattention.nn.pose import HeadsRead
from crossattention.nn.project import check_stream, finish, heads_of
from crossattention.nn.reader import Reader
from crossattention.nn.sizes import Sizes

COMBINE = ("sum", "gate", "joint")


class MultiCrossAttention(nn.Module):
    """Read k memories with the same queries.

    Args:
        width: c, of the query stream and of the output.
        heads: h.
        memory_widths: the width of each memory's rows, k of them.
        combine: "sum", "gate" or "joint", as in the equations of this module. With "gate" the
            first memory is always read, and the others through a gate for each head.
        key_width: d, the width of one head's queries, keys and values; None: width // heads.
        memory_heads: g, key and value heads, which h is a multiple of; None: h.
        bias: whether projections have one.
        dropout: probability that a weight is dropped in training.

    Submodules that may be replaced: `query_projection`, `query_norm`, `output_projection`; and
    `readers`, one `Reader` for each memory, each with its own `scale` of scores, key norm and null
    row. Attribute that may be set: `amounts` (1 each), how much each memory counts: the factor on
    what was read from it, or with "joint" on exp(score) of each of its rows.

    Differs from one memory of all rows: each has its own width, projections, owner and history.

    >>> layer = MultiCrossAttention(8, 2, (6, 5))
    >>> rows = [torch.randn(1, 4, 6), torch.randn(1, 7, 5)]
    >>> layer(torch.randn(1, 3, 8), rows).shape, layer.shares(torch.randn(1, 3, 8), rows).shape
    (torch.Size([1, 3, 8]), torch.Size([1, 2, 3, 2]))
    """

    def __init__(
        self,
        width: int,
        heads: int,
        memory_widths: Sequence[int],
        *,
        combine: str = "joint",
        key_width: int | None = None,
        memory_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if combine not in COMBINE:
            names = ", ".join(repr(each) for each in COMBINE)
            given, do = describe(combine), "choose one"
            raise ContractError(complaint("combine", f"one of {names}", given, do))
        if not isinstance(memory_widths, Sequence) or not memory_widths:
            want, do = "one width or more", "pass the width of each memory's rows"
            raise ContractError(complaint("memory_widths", want, describe(memory_widths), do))
        self.sizes = Sizes.of(width, heads, None, (key_width, None), memory_heads)
        self.combine = combine
        each = (
            Sizes.of(width, heads, wide, (key_width, None), memory_heads) for wide in memory_widths
        )
        self.readers = nn.ModuleList(Reader(sizes, bias, dropout) for sizes in each)
        self.query_projection: nn.Module = nn.Linear(width, heads * self.sizes.key_width, bias)
        self.query_norm: nn.Module = nn.Identity()
        self.output_projection: nn.Module = nn.Linear(heads * self.sizes.key_width, width, bias)
        self.amounts: list[float] = [1.0] * len(memory_widths)
        self.gates = None
        if combine == "gate":
            self.gates = nn.Parameter(torch.zeros(len(memory_widths) - 1, heads))
        initialise(self)

    def remember(
        self,
        rows: Sequence[Tensor | Memory],
        lengths: Sequence[Tensor | Sequence[int] | None] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
        form: str = "auto",
    ) -> tuple[Memory, ...]:
        """Prepare each memory for reading, once.

        Args:
            rows: k of `[m, s_i, c_i]`, or memories in which other layers have written already.
            lengths: k of integers `[m]`, or None.
            queries, reads, form: as in `CrossAttention.remember`, for all.

        >>> layer = MultiCrossAttention(8, 2, (6, 5))
        >>> [x.size for x in layer.remember([torch.ones(1, 4, 6), torch.ones(1, 7, 5)])]
        [(1, 4), (1, 7)]
        """
        each = partial(parts.one_each, count=len(self.readers))
        given = zip(each("rows", rows), each("lengths", lengths), strict=True)
        return tuple(
            parts.reader_of(self.readers, i).remember(
                memory, count, queries=queries, reads=reads, form=form
            )
            for i, (memory, count) in enumerate(given)
        )

    def forward(
        self,
        query: Tensor,
        memories: Sequence[Tensor | Memory],
        *,
        visible: Sequence[Tensor | None] | None = None,
        bias: Sequence[Tensor | None] | None = None,
    ) -> Tensor:
        """Read all memories.

        Args:
            query: `[b, t, c]`.
            memories: k memories from `remember`, or rows `[b, s_i, c_i]`.
            visible, bias: k masks or None each, as in `CrossAttention.forward`.
        Returns:
            `[b, t, c]`; exactly 0 for a row that may read nothing in any memory.
        """
        factors, joint = self._factors(), self.combine == "joint"
        found = self._read(query, memories, visible, bias, wants_lse=joint)
        value = parts.join(found, self.amounts) if joint else parts.add(found, factors)
        merged = value.transpose(1, 2).flatten(2)  # [b, h, t, e] -> [b, t, h·e]
        return finish(merged, self.output_projection, parts.who_read(found, factors))

    def shares(
        self,
        query: Tensor,
        memories: Sequence[Tensor | Memory],
        *,
        visible: Sequence[Tensor | None] | None = None,
        bias: Sequence[Tensor | None] | None = None,
    ) -> Tensor:
        """Show how much attention each memory received, [b, h, t, k]; rows sum to 1, 0 if empty.

        With "sum" and "gate" each has a softmax of its own: what it had in a common one.
        """
        found = self._read(query, memories, visible, bias, wants_lse=True)
        amounts = parts.check_amounts(self.amounts, len(found))
        if self.combine != "joint":
            amounts = [1.0] * len(found)
        return parts.shares(parts.weighed(found, amounts))

    def _read(
        self,
        query: Tensor,
        memories: Sequence[Tensor | Memory],
        visible: Sequence[Tensor | None] | None,
        bias: Sequence[Tensor | None] | None,
        wants_lse: bool,
    ) -> list[HeadsRead]:
        check_stream("query", query, self.sizes.width, self.query_projection)
        h, d = self.sizes.heads, self.sizes.key_width
        asked = self.query_norm(heads_of("query_projection", self.query_projection(query), h, d))
        each = partial(parts.one_each, count=len(self.readers))
        posed = zip(
            each("memories", memories), each("visible", visible), each("bias", bias), strict=True
        )
        found = []
        for i, (memory, shown, added) in enumerate(posed):
            reader = parts.reader_of(self.readers, i)
            if not isinstance(memory, Memory):
                memory = reader.remember(memory, queries=query.shape[1], reads=1)
            read = reader.read(asked, memory, visible=shown, bias=added, wants_lse=wants_lse)
            found.append(read)
        return found

    def _factors(self) -> list[parts.Factor]:
        """How much what was read from each memory counts: numbers, or [h, 1, 1] behind gates."""
        amounts = parts.check_amounts(self.amounts, len(self.readers))
        if self.gates is None:
            return [*amounts]
        opened = torch.tanh(self.gates)[..., None, None]  # [k - 1, h] -> [k - 1, h, 1, 1]
        return [amounts[0], *(x * y for x, y in zip(opened, amounts[1:], strict=True))]
