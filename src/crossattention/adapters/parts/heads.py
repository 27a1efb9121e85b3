"""The heads of somebody else's module: its maps as they are now, and one way to read with them.

    value[b, h, t] = softmax(scale · q·(W_k x + b_k) + bias, over what is visible) (W_v x + b_v)

In the projected form the rows are mapped and then read; in the raw form the query is folded through
the key map, the rows are read as they are and the average is mapped. The same numbers; the cheaper
is taken. Nothing is copied and nothing kept, so nothing can be out of date.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.adapters.parts.masks import Masks
from crossattention.attention.attend import read
from crossattention.attention.hidden import build_mask, clear_unread
from crossattention.content import Content
from crossattention.kernels.contract import Problem, Reading, Score
from crossattention.kernels.matmul import weights
from crossattention.nn import raw
from crossattention.nn.form import Life, choose_form, form_costs
from crossattention.nn.pose import answer
from crossattention.nn.project import heads_of, map_rows
from crossattention.nn.sizes import Sizes
from crossattention.owner import Owner

Map = nn.Module | raw.Affine


@dataclass(frozen=True)
class Heads:
    """Key and value maps of some heads.

    Attributes:
        key, value: map rows `[m, s, c]` to `[m, s, g·d]` and `[m, s, g·e]`.
        sizes: of the heads.
        scale: factor on q·k.
        key_norm: on each head's keys, `[m, g, s, d]`.
        extra: keys `[g, n, d]` and values `[g, n, e]` that stand behind every memory's rows.

    >>> import torch
    >>> maps = raw.Affine(torch.eye(4)), raw.Affine(torch.eye(4))
    >>> heads = Heads(*maps, Sizes.of(4, 2, None, (None, None), None), scale=1.0)
    >>> heads.pose(torch.ones(1, 2, 3, 2), torch.ones(1, 5, 4)).values().shape
    torch.Size([1, 2, 3, 2])
    """

    key: Map
    value: Map
    sizes: Sizes
    scale: float
    key_norm: nn.Module | None = None
    extra: tuple[Tensor, Tensor] | None = None

    def refusals(self) -> list[str]:
        """List, in words, why the rows cannot be read as they are."""
        norm = nn.Identity() if self.key_norm is None else self.key_norm
        reasons = raw.refusals(self.key, self.value, norm, None)
        return [*reasons, "there are rows behind the memory's"] if self.extra else reasons

    def project(self, rows: Tensor, value_rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Map rows to keys `[m, g, s, d]` and values `[m, g, s, e]`."""
        g, d, e = self.sizes.memory_heads, self.sizes.key_width, self.sizes.value_width

        def keys(given: Tensor) -> Tensor:
            split = heads_of("key", self.key(given), g, d)  # [m, s, g·d] -> [m, g, s, d]
            normed: Tensor = split if self.key_norm is None else self.key_norm(split)
            return normed

        other = rows if value_rows is None else value_rows
        value = map_rows(lambda given: heads_of("value", self.value(given), g, e), other)
        return map_rows(keys, rows), value

    def pose(
        self,
        query: Tensor,
        rows: Tensor,
        value_rows: Tensor | None = None,
        *,
        masks: Masks | None = None,
        dropout: float = 0.0,
        owner: Owner | None = None,
        form: str = "auto",
    ) -> Posed:
        """Pose one read of rows.

        Args:
            query: `[b, h, t, d]`, or `[1, h, t, d]` where every memory is asked the same.
            rows, value_rows: `[m, s, c_k]`, and `[m, s, c_v]` where values come from other rows.
            masks: over the rows, and over those in `extra` behind them.
            dropout: probability that a weight is dropped.
            owner: the memory of each query sequence; None: sequence i reads memory i.
            form: "auto", "projected" or "raw".
        """
        (b, _, t, _), (m, s, _) = query.shape, rows.shape
        b = m if owner is None and b == 1 else b
        life = Life(m, s, t * b // max(m, 1), reads=1, dtype=rows.dtype)
        costs = form_costs(life, self.sizes)
        chosen, score = choose_form(form, costs, self.refusals()), Score(self.scale)
        if chosen == "raw" and isinstance(self.key, raw.Linear):
            query, offset = raw.fold_query(query, self.key, self.sizes.memory_heads)
            offset = None if offset is None else offset.expand(b, -1, -1, -1)
            score = Score(self.scale, None, offset)
            key = rows[:, None]  # [m, s, c] -> [m, 1, s, c]
            value = key if value_rows is None else value_rows[:, None]
        else:
            key, value = self.with_extra(*self.project(rows, value_rows))
        query = query.expand(b, -1, -1, -1)  # [1, h, t, c] -> [b, h, t, c]
        return Posed(self, chosen, pose(query, (key, value), masks, score, dropout, owner))

    def with_extra(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put the rows in `extra` behind those of each memory."""
        if self.extra is None:
            return key, value
        keys, values = (each.to(key.dtype).expand(len(key), -1, -1, -1) for each in self.extra)
        return torch.cat((key, keys), 2), torch.cat((value, values), 2)


@dataclass(frozen=True)
class Posed:
    """One read, ready to be computed.

    Attributes:
        heads, form: whose maps, and in which form the rows are read.
        problem: what the kernels are given.
    """

    heads: Heads
    form: str
    problem: Problem

    def values(self, lowest: bool = False) -> Tensor:
        """Compute the heads' values, `[b, h, t, e]`; 0 for a row that may read nothing.

        Args:
            lowest: whether the bias may be the lowest float all along a row. Beside it a
                log-sum-exp is rounded, and the gradients of fused kernels come from that.
        """
        kept = lowest and torch.is_grad_enabled()
        return self._mapped(read(self.problem, "matmul" if kept else "auto"))

    def values_and_weights(self) -> tuple[Tensor, Tensor]:
        """Compute the values and the weights they were averaged with, `[b, h, t, s]`."""
        problem, groups = self.problem, self.problem.value.shape[1]
        weighed = weights(problem)
        if problem.dropout:
            weighed = F.dropout(weighed, problem.dropout)
        grouped = weighed.unflatten(1, (groups, -1)).flatten(2, 3)  # -> [b, g, r·t, s]
        read_value = grouped @ problem.value.to(weighed.dtype)
        read_value = read_value.view(*weighed.shape[:3], -1).to(problem.query.dtype)
        total = weighed.sum(-1) if problem.dropout else None
        return self._mapped(Reading(read_value, None, total)), weighed

    def _mapped(self, reading: Reading) -> Tensor:
        if self.form != "raw":
            return reading.value
        sizes = self.heads.sizes
        return answer(reading, self.problem, Content(()), self.heads.value, sizes.memory_heads)


def pose(
    query: Tensor,
    kept: tuple[Tensor, Tensor],
    masks: Masks | None,
    score: Score,
    dropout: float = 0.0,
    owner: Owner | None = None,
) -> Problem:
    """Check masks, and pose a read of keys and values that are there.

    >>> import torch
    >>> x = torch.ones(1, 2, 3, 4)
    >>> pose(x, (x, x), None, Score(1.0)).sizes
    (1, 1, 2, 2, 3, 3, 4, 4)
    """
    masks = Masks() if masks is None else masks
    shape = (*query.shape[:3], kept[0].shape[2])
    mask, readable = build_mask(
        shape, query.device, None, owner, masks.visible, masks.bias, masks.causal, shape[3] == 0
    )
    key, value = clear_unread(*kept, readable, owner)
    return Problem(query, key, value, owner, mask, score, dropout)
