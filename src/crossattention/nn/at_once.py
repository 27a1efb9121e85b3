"""Read rows at once, in the raw form: what `remember` and `read` give, with no memory in between.

    value[b, h, t] = W_v (softmax(scale · (W_kᵀ q)·x) x) + b_v

A memory is checked, stamped and found again, as it may be kept and shared. For rows that are all
real and visible, and that nobody reads again, nothing of that need be made. How rows are read hangs
on the reader, its queries and the rows' traits; a plan of it may be kept as long as these last.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from torch import Tensor

from crossattention.attention.attend import read
from crossattention.attention.choose import choose
from crossattention.attention.door import check_dropout, check_scale, check_softcap
from crossattention.attention.hidden import NOTHING
from crossattention.attention.known import traits_of
from crossattention.content import Content
from crossattention.kernels.contract import Problem, Reading, Score
from crossattention.kernels.native.call import Given, Layout
from crossattention.kernels.native.registered import are_followed
from crossattention.nn import raw
from crossattention.nn.form import Life, check_sources, choose_form, form_costs
from crossattention.nn.kept import is_plain
from crossattention.nn.pose import HeadsRead, answer, check_differentiable
from crossattention.nn.reader import Reader
from crossattention.nn.stamp import stamp_of
from crossattention.source import check_rows

_RAW = Content(())  # neither keys nor values


class Plan(NamedTuple):
    """How rows of one shape are read at once, by queries that are folded already.

    Attributes:
        query: `[b, h, t, c]`, folded through the key projection.
        score: of the reading.
        layout: what the native kernel is told of such rows; None where another one is run, or the
            kernel is chosen anew.
    """

    query: Tensor
    score: Score
    layout: Layout | None = None

    def read(self, reader: Reader, rows: Tensor) -> HeadsRead:
        """Read rows [b, s, c] like those that this was made for."""
        value, heads = reader.value_projection, reader.sizes.memory_heads
        if self.layout is not None and isinstance(value, raw.Linear):
            one = rows[:, None]  # [b, s, c] -> [b, 1, s, c]
            average = self.layout.read(Given(self.query, one, one), self.score.scale)
            return HeadsRead(raw.map_average(Reading(average), value, heads, None), None, None)
        problem = self.pose(rows)
        check_differentiable(problem.query, problem.key)
        found = read(problem, reader.kernel)
        return HeadsRead(answer(found, problem, _RAW, value, heads), None, None)

    def pose(self, rows: Tensor) -> Problem:
        """Pose the reading of rows [b, s, c]."""
        one = rows[:, None]  # [b, s, c] -> [b, 1, s, c]
        return Problem(self.query, one, one, None, NOTHING, self.score)


def plan_at_once(
    reader: Reader,
    query: Tensor,
    rows: Tensor,
    form: str = "auto",
    fold: raw.Fold = raw.fold_query,
    is_kept: bool = False,
) -> Plan | None:
    """Plan to read rows [b, s, c] with projected queries; None where it takes a memory.

    Args:
        reader: whose keys and values are read.
        query: `[1, h, t, d]`, asked of every sequence; projected and normed.
        rows: floats, all of them real and visible.
        form, fold: as in `Reader.remember` and `Reader.read`.
        is_kept: whether the plan will be kept, for rows of the same traits.
    Raises:
        ContractError: as `Reader.remember` and `Reader.read`.

    >>> import torch
    >>> from crossattention.nn import CrossAttention
    >>> layer, rows = CrossAttention(8, 2), torch.ones(5, 7, 8)
    >>> plan_at_once(layer, torch.ones(1, 2, 3, 4), rows, "raw").read(layer, rows).value.shape
    torch.Size([5, 2, 3, 4])
    """
    key, value, sizes = reader.key_projection, reader.value_projection, reader.sizes
    check_rows(rows)
    check_sources(rows, rows, sizes, key, value)
    refused = raw.refusals(key, value, reader.key_norm, reader.rotary)
    (b, s, _), (_, _, t, d) = rows.shape, query.shape
    chosen = choose_form(form, form_costs(Life(b, s, t, 1, rows.dtype), sizes), refused)
    dropped = check_dropout(reader.dropout) * reader.training
    if chosen != "raw" or not isinstance(key, raw.Linear):
        return None
    if dropped or reader.null_row is not None or not (b and s):
        return None
    folded, offset = fold(query.expand(b, -1, -1, -1), key, sizes.memory_heads)
    score = Score(check_scale(reader.scale, d), check_softcap(reader.softcap), offset)
    plan = Plan(folded, score)
    if not is_kept or not isinstance(reader.kernel, str):
        return plan
    problem = plan.pose(rows)
    layout = getattr(choose(problem, reader.kernel), "layout", None)
    return plan if layout is None else plan._replace(layout=layout(problem))


def traits_at_once(reader: Reader, rows: Tensor) -> Hashable | None:
    """List what a plan hangs on, beside queries and form; None where more than that decides.

    >>> import torch
    >>> from crossattention.nn import CrossAttention
    >>> layer, rows = CrossAttention(8, 2), torch.ones(5, 7, 8)
    >>> traits_at_once(layer, rows) == traits_at_once(layer, rows.double())
    False
    """
    value = reader.value_projection
    traits = traits_of(rows) if is_plain(value) and not are_followed() else None
    if traits is None:
        return None
    return (
        traits, stamp_of(value), reader.sizes, reader.scale, reader.softcap,
        reader.kernel, reader.dropout, reader.training, reader.null_row, reader.rotary,
    )  # fmt: skip
