"""Pose a layer's reading as a `Problem`, and turn the answer back into the layer's values.

In the projected form the problem is the layer's own. In the raw form the query is folded, the
rows serve as keys and as values of one head, and the average is mapped afterwards; the kernels see
no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from crossattention.argument import check_integers, check_range
from crossattention.attention.hidden import build_mask, clear_unread
from crossattention.content import Content
from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Problem, Reading, Score
from crossattention.memory import Memory
from crossattention.nn import raw


class HeadsRead(NamedTuple):
    """What the heads read: value [b, h, t, e], lse [b, h, t] if asked for, and who read at all.

    `reads` is bool `[b|1, h|1, t|1, 1]`, False for a row that may read nothing; None: all read.
    """

    value: Tensor
    lse: Tensor | None
    reads: Tensor | None


def pose(
    query: Tensor,
    memory: Memory,
    content: Content,
    key_projection: nn.Module | raw.Affine,
    score: Score,
    visible: Tensor | None,
    bias: Tensor | None,
    fold: raw.Fold = raw.fold_query,
) -> Problem:
    """Pose a reading.

    Args:
        query: `[b, h, t, d]`, projected and normed.
        memory, content: what is read, and what this layer keeps of it.
        key_projection: folded into the query in the raw form.
        score, visible, bias: as `attend` means them.
        fold: how the query is folded.
    Raises:
        ContractError: another number of query sequences than read the memory; masks.

    >>> memory = Memory.of(torch.ones(1, 5, 4))
    >>> pose(
    ...     torch.ones(1, 2, 3, 2), memory, Content(()), nn.Linear(4, 4), Score(1.0), None, None
    ... ).sizes
    (1, 1, 2, 1, 3, 5, 4, 4)
    """
    b, h, t, d = query.shape
    check_sequences("query", b, memory, f"b = {b}")
    extent = memory.holding.extent
    mask, readable = build_mask(
        (b, h, t, extent.size[1]), query.device, extent.readable, memory.owner,
        visible, bias, None, extent.may_be_empty,
    )  # fmt: skip
    key, value = content.key, content.value
    if key is None or value is None:
        key, value = _raw_rows(memory)
        if not isinstance(key_projection, raw.Linear):
            raise _replaced("key_projection", key_projection)
        query, offset = fold(query, key_projection, key_projection.weight.shape[0] // d)
        score = score._replace(offset=offset)
    check_differentiable(query, key)
    if visible is None and bias is None:  # `remember` has cleared what lies beyond the lengths
        readable = None
    key, value = clear_unread(key, value, readable, memory.owner)
    return Problem(query, key, value, memory.owner, mask, score)


def answer(
    reading: Reading,
    problem: Problem,
    content: Content,
    value_projection: nn.Module | raw.Affine,
    heads: int,
) -> Tensor:
    """Give the layer's values [b, h, t, e]: what was read, or its map in the raw form.

    Args:
        reading: what a kernel returned for the problem.
        problem, content: from and for `pose`.
        value_projection: maps the average in the raw form.
        heads: g, the layer's memory heads.

    >>> kept = Content.of((), torch.ones(1, 2, 5, 2), torch.ones(1, 2, 5, 2))
    >>> answer(Reading(torch.ones(1, 2, 3, 2)), None, kept, None, 2).shape
    torch.Size([1, 2, 3, 2])
    """
    if content.key is not None:
        return reading.value
    if not isinstance(value_projection, raw.Linear):
        raise _replaced("value_projection", value_projection)
    total, reads = reading.total, problem.mask.reads
    if total is None and reads is not None:  # without dropout the weights sum to 1, empty ones to 0
        total = reads[..., 0].to(reading.value.dtype)
    mapped = raw.map_average(reading, value_projection, heads, total)
    offset = problem.score.offset
    if offset is None or not offset.requires_grad:
        return mapped
    # Where only the softmax sees the key bias it has no effect. It keeps its place in the graph,
    # so that its gradient is the exact zero of the projected form and not a missing one.
    nothing = torch.zeros_like(offset).where(torch.ones_like(offset).bool(), offset)
    return mapped + nothing.to(mapped.dtype)


def check_differentiable(query: Tensor, key: Tensor) -> None:
    """Check that a memory that a query is differentiated through can be.

    >>> check_differentiable(torch.ones(1, requires_grad=True), torch.ones(1))
    """
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and query.requires_grad):
        return
    if key.is_inference():
        given, do = "one made in inference mode", "remember under torch.no_grad() instead"
        raise ContractError(complaint("memory", "made to be differentiated through", given, do))


def check_sequences(name: str, sequences: int, memory: Memory, given: str) -> None:
    """Check that as many query sequences ask as read the memory; `given` says what was given.

    >>> check_sequences("query", 2, Memory.of(torch.ones(2, 3, 4)), "b = 2")
    """
    if sequences != memory.sequences:
        want = f"[b, t, c] with b = {memory.sequences}, the query sequences that read the memory"
        do = "see memory.shared_by(n) and memory.select(index)"
        raise ContractError(complaint(name, want, given, do))


def check_heads(heads: Sequence[int], count: int) -> list[int]:
    """Check the heads [k] that are asked for, each from 0 to `count` - 1.

    >>> check_heads([2, 0], 4)
    [2, 0]
    """
    do = "count heads from 0"
    given = check_integers("heads", heads, "a list of head numbers", do)
    check_range("heads", given, count, f"between 0 and {count - 1}", do)
    return [int(head) for head in heads]


def only_heads(problem: Problem, heads: list[int]) -> Problem:
    """Keep some query heads [k] of a problem, each with the memory head that it reads.

    >>> from crossattention.mask import Mask
    >>> q, k = torch.zeros(1, 4, 3, 2), torch.zeros(1, 2, 5, 2)
    >>> only_heads(Problem(q, k, k, None, Mask(), Score(1.0)), [3]).sizes
    (1, 1, 1, 1, 3, 5, 2, 2)
    """
    _, _, h, g, _, _, _, _ = problem.sizes
    kept, memory_heads = heads, [head // (h // g) for head in heads]

    def each(tensor: Tensor | None) -> Tensor | None:
        return tensor if tensor is None or tensor.shape[1] == 1 else tensor[:, kept]

    mask, score = problem.mask, problem.score
    return problem._replace(
        query=problem.query[:, kept],
        key=problem.key[:, memory_heads],
        value=problem.value[:, memory_heads],
        mask=mask._replace(
            visible=each(mask.visible), bias=each(mask.bias), reads=each(mask.reads)
        ),
        score=score._replace(offset=None if score.offset is None else score.offset[:, kept]),
    )


def _replaced(name: str, projection: nn.Module) -> ContractError:
    want, do = "the nn.Linear that the raw form was chosen for", "call remember again"
    return ContractError(complaint(name, want, f"a {type(projection).__name__}", do))


def _raw_rows(memory: Memory) -> tuple[Tensor, Tensor]:
    rows, values = memory.holding.rows().kept()
    return rows[:, None], values[:, None]  # [m, s, c] -> [m, 1, s, c]
