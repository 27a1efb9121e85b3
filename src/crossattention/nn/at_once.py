"""Read rows at once, in the raw form: what `remember` and `read` give, with no memory in between.

    value[b, h, t] = W_v (softmax(scale · (W_kᵀ q)·x) x) + b_v

A memory is checked, stamped and found again, as it may be kept and shared. For rows that are all
real and visible, and that nobody reads again, nothing of that need be made.
"""

from __future__ import annotations

from torch import Tensor

from crossattention.attention.attend import read
from crossattention.attention.door import check_dropout, check_scale, check_softcap
from crossattention.attention.hidden import NOTHING
from crossattention.content import Content
from crossattention.kernels.contract import Problem, Score
from crossattention.nn import raw
from crossattention.nn.form import Life, check_sources, choose_form, form_costs
from crossattention.nn.pose import HeadsRead, answer, check_differentiable
from crossattention.nn.reader import Reader
from crossattention.source import check_rows

_RAW = Content(())  # neither keys nor values


def read_at_once(
    reader: Reader, query: Tensor, rows: Tensor, form: str = "auto", fold: raw.Fold = raw.fold_query
) -> HeadsRead | None:
    """Read rows [b, s, c] with projected queries; None where it takes a memory.

    Args:
        reader: whose keys and values are read.
        query: `[1, h, t, d]`, asked of every sequence; projected and normed.
        rows: floats, all of them real and visible.
        form, fold: as in `Reader.remember` and `Reader.read`.
    Raises:
        ContractError: as `Reader.remember` and `Reader.read`.

    >>> import torch
    >>> from crossattention.nn import CrossAttention
    >>> read_at_once(
    ...     CrossAttention(8, 2), torch.ones(1, 2, 3, 4), torch.ones(5, 7, 8), "raw"
    ... ).value.shape
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
    one = rows[:, None]  # [b, s, c] -> [b, 1, s, c]
    check_differentiable(folded, one)
    problem = Problem(folded, one, one, None, NOTHING, score)
    found = read(problem, reader.kernel)
    return HeadsRead(answer(found, problem, _RAW, value, sizes.memory_heads), None, None)
