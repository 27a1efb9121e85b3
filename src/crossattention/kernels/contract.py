"""What a kernel is given, what it returns, and what it must be able to say about itself.

A kernel is one exact evaluation of

    value[b, h, t] = sum_s softmax_s(cap(scale * (q·k + offset)) + bias, over the visible s) v[s]

Explicit choices run or raise with their refusals; the automatic choice takes the cheapest that
accepts.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from crossattention.errors import ContractError, complaint
from crossattention.mask import Mask
from crossattention.owner import Owner


class Score(NamedTuple):
    """How a product becomes a score: `cap · tanh(scale · (q·k + offset) / cap)`.

    `offset` `[b, h, t, 1]` is the part of q·k that is the same for all memory rows (a key bias
    met by a folded query). The softmax does not see it; the log-sum-exp and the soft cap do.

    >>> Score(scale=0.125).softcap is None
    True
    """

    scale: float
    softcap: float | None = None
    offset: Tensor | None = None


class Problem(NamedTuple):
    """One reading, checked: query [b, h, t, d], key [m, g, s, d], value [m, g, s, e].

    `owner` None means that query sequence i reads memory i. `dropout` acts on the weights.
    Memory rows that no query may read hold finite values here, and `mask` says who reads nothing;
    a kernel with `skips_hidden = True` needs neither, and is given problems before that is found.

    >>> import torch
    >>> q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    >>> Problem(q, k, k, None, Mask(), Score(0.5)).sizes
    (2, 2, 3, 3, 5, 7, 4, 4)
    """

    query: Tensor
    key: Tensor
    value: Tensor
    owner: Owner | None
    mask: Mask
    score: Score
    dropout: float = 0.0
    wants_lse: bool = False

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int, int, int]:
        """The sizes b, m, h, g, t, s, d, e.

        >>> import torch
        >>> q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
        >>> Problem(q, k, k, None, Mask(), Score(0.5)).sizes[5]
        7
        """
        b, h, t, d = self.query.shape
        m, g, s, e = self.value.shape
        return b, m, h, g, t, s, d, e

    @property
    def wants_gradient(self) -> bool:
        """Whether any input asks for a gradient.

        >>> import torch
        >>> q = torch.zeros(1, 1, 1, 2, requires_grad=True)
        >>> Problem(q, q, q, None, Mask(), Score(0.5)).wants_gradient
        True
        """
        given = (self.query, self.key, self.value, self.mask.bias, self.score.offset)
        return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)


class Reading(NamedTuple):
    """What was read: value [b, h, t, e], its log-sum-exp and its weights' total [b, h, t].

    `lse` is there when it was asked for. `total` is the sum of the weights after dropout, there
    when dropout was on; without dropout the total is 1, or 0 for an empty row.

    >>> import torch
    >>> Reading(torch.zeros(1, 1, 1, 2)).lse is None
    True
    """

    value: Tensor
    lse: Tensor | None = None
    total: Tensor | None = None

    def lse_or_raise(self) -> Tensor:
        """Give the log-sum-exp of a problem that asked for it.

        >>> import torch
        >>> Reading(torch.zeros(1, 1, 1, 2), lse=torch.zeros(1, 1, 1)).lse_or_raise().shape
        torch.Size([1, 1, 1])
        """
        if self.lse is None:
            do = "refuse `wants_lse`, or return `lse`"
            want = "one that returns the log-sum-exp it was asked for"
            raise ContractError(complaint("kernel", want, "a reading without", do))
        return self.lse


class Cost(NamedTuple):
    """What a kernel needs.

    Attributes:
        multiply_adds: of both products.
        bytes: read and written.
        pieces: separate pieces of work.
        scores: scores that are turned into weights one by one, each pass over them counted.

    >>> Cost(multiply_adds=2, bytes=8).pieces
    0
    """

    multiply_adds: int
    bytes: int
    pieces: int = 0
    scores: int = 0


class Kernel(Protocol):
    """One exact evaluation; an object that is its own options."""

    @property
    def name(self) -> str:
        """The name by which it is chosen."""
        ...

    def refuses(self, problem: Problem) -> list[str]:
        """List, in words, why this kernel cannot run the problem."""
        ...

    def cost(self, problem: Problem) -> Cost:
        """Count what it needs."""
        ...

    def run(self, problem: Problem) -> Reading:
        """Compute."""
        ...


def plainly(device: torch.device) -> AbstractContextManager[object]:
    """Compute in the dtypes that are given, whatever autocast is on; every device has a say.

    >>> with plainly(torch.device("cpu")), torch.autocast("cpu"):
    ...     pass
    """
    if not is_mixed() or not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def is_mixed() -> bool:
    """Whether autocast is on, for any device.

    >>> with torch.autocast("cpu"):
    ...     is_mixed()
    True
    """
    return torch._C._is_any_autocast_enabled()
