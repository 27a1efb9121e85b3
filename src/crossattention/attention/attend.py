"""Attend: each query row averages the memory rows it may read.

    value[b, h, t] = sum_s softmax_s(cap(scale · q·k) + bias, over the visible s) v[s]

In this order: scale, soft cap, bias, hide, softmax over s, dropout, times value. A query row that
may read nothing gets exactly 0, log-sum-exp -inf and zero gradients, on every path. Paper:
Vaswani et al. 2017, "Attention Is All You Need", section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from crossattention.attention.choose import choose
from crossattention.attention.door import enter
from crossattention.attention.hidden import run, settled
from crossattention.attention.known import read_known
from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.contract import Kernel, Problem, Reading
from crossattention.kernels.matmul import weights
from crossattention.mask import Causal
from crossattention.owner import Owner


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    owner: Owner | Tensor | Sequence[int] | None = None,
    causal: Causal = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    kernel: str | Kernel = "auto",
) -> Tensor:
    """Read a memory: softmax(cap(q·k · scale) + bias, over what is visible) · value.

    Args:
        query: `[b, h, t, d]`, or `[b, t, d]` for one head.
        key: `[m, g, s, d]`, or `[m, s, d]`; g divides h; query head j reads key head j // (h/g).
        value: `[m, g, s, e]`, or `[m, s, e]`.
        visible: bool, each axis of `[b, h, t, s]` full or 1, or `[t, s]`; **True = may be read**.
        bias: float of the same shapes, added to the scaled and capped scores; -inf hides.
        lengths: integers `[m]`: rows at or beyond a memory's length are never read.
        owner: integers `[b]`, the memory each query sequence reads; None: sequence i reads i.
        causal: None, "top_left" (row i reads s <= i), "bottom_right" (s <= i + s_total - t), or the
            offset as an integer.
        softcap: c in c·tanh(score / c), or None.
        scale: factor on q·k; None is 1/√d.
        dropout: probability that a weight is dropped, from 0 to below 1. There is no training
            flag: pass 0 outside training.
        kernel: "auto", "reference", "matmul", "fused", "native", or a kernel.

    Returns:
        `[b, h, t, e]` (or `[b, t, e]`) in the query's dtype.

    Raises:
        ContractError: a shape, dtype, device or value that breaks the contract.
        NoKernelError: the named kernel refuses, with its reasons.

    Differs from `torch.nn.functional.scaled_dot_product_attention`: memories may be shared
    (`owner`), causality names its corner, an empty row is 0 on every path, and memory rows that
    nobody may read may hold NaN.

    >>> import torch
    >>> key = torch.tensor([[[0.0], [0.0], [9.0]]])
    >>> attend(torch.ones(1, 1, 1), key, torch.tensor([[[2.0], [4.0], [7.0]]]), lengths=[2]).item()
    3.0
    """
    if causal is softcap is None and kernel == "auto" and type(dropout) is float and dropout == 0:
        known = read_known(query, key, value, owner, visible, bias, lengths, scale)
        if known is not None:
            return known
    problem, headless = enter(
        query, key, value, visible=visible, bias=bias, lengths=lengths, owner=owner,
        causal=causal, softcap=softcap, scale=scale, dropout=dropout,
    )  # fmt: skip
    read_value = _read(problem, kernel).value
    return read_value[:, 0] if headless else read_value


def attend_with_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    owner: Owner | Tensor | Sequence[int] | None = None,
    causal: Causal = None,
    softcap: float | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    kernel: str | Kernel = "auto",
) -> tuple[Tensor, Tensor]:
    """Read a memory, and say how much there was to read: `attend` and its log-sum-exp.

        lse[b, h, t] = log sum_s exp(score), over the visible s; -inf where nothing is visible

    Arguments, errors and differences are those of `attend`. Gradients flow through both results.

    Returns:
        value `[b, h, t, e]` in the query's dtype, and lse `[b, h, t]` in float32 or wider
        (without the head axis: `[b, t, e]` and `[b, t]`).

    >>> import torch
    >>> rows = torch.zeros(1, 4, 2)
    >>> round(attend_with_lse(torch.ones(1, 1, 2), rows, rows)[1].exp().item(), 4)
    4.0
    """
    problem, headless = enter(
        query, key, value, visible=visible, bias=bias, lengths=lengths, owner=owner,
        causal=causal, softcap=softcap, scale=scale, dropout=dropout,
    )  # fmt: skip
    reading = _read(problem._replace(wants_lse=True), kernel)
    lse = reading.lse_or_raise()
    return (reading.value[:, 0], lse[:, 0]) if headless else (reading.value, lse)


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    owner: Owner | Tensor | Sequence[int] | None = None,
    causal: Causal = None,
    softcap: float | None = None,
    scale: float | None = None,
) -> Tensor:
    """Show the weights with which `attend` averages, before dropout.

    Arguments as in `attend`.

    Returns:
        `[b, h, t, s]` (or `[b, t, s]`), at least float32: rows sum to 1, or are 0 where empty.

    >>> import torch
    >>> attention_weights(torch.ones(1, 1, 2), torch.zeros(1, 4, 2), lengths=[2]).tolist()
    [[[0.5, 0.5, 0.0, 0.0]]]
    """
    problem, headless = enter(
        query, key, key, visible=visible, bias=bias, lengths=lengths, owner=owner,
        causal=causal, softcap=softcap, scale=scale, dropout=0.0,
    )  # fmt: skip
    weighed = weights(settled(problem))
    return weighed[:, 0] if headless else weighed


def read(problem: Problem, kernel: str | Kernel = "auto") -> Reading:
    """Choose a kernel for a checked problem, and run it: what layers call.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> x = torch.ones(1, 1, 1, 2)
    >>> read(Problem(x, x, x, None, Mask(), Score(1.0))).value.tolist()
    [[[[1.0, 1.0]]]]
    """
    chosen = choose(problem, kernel)
    reading = chosen.run(problem)
    if isinstance(kernel, str):
        return reading
    want = (*problem.query.shape[:3], problem.value.shape[-1])
    if not isinstance(reading, Reading) or reading.value.shape != want:
        given = describe(getattr(reading, "value", reading))
        do = f"kernel {chosen.name} is not yet one"
        raise ContractError(complaint("kernel", f"one that reads a value {want}", given, do))
    return reading


def _read(problem: Problem, kernel: str | Kernel) -> Reading:
    chosen = choose(problem, kernel)
    return run(chosen, problem) if isinstance(kernel, str) else read(settled(problem), chosen)
