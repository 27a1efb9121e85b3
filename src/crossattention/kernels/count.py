"""What a problem asks of whichever kernel runs it, counted from its sizes: the terms of a cost.

    multiply-adds  b·h·t·s·(d + e)      scores  b·h·t·s a pass      bytes  query, key, value, result

What kernels need beyond that, copies and pieces of work, each counts for itself.
"""

from __future__ import annotations

import math

from crossattention.kernels.contract import Problem


def products(problem: Problem) -> int:
    """Multiply-adds of q·k and weights·v: b·h·t·s·(d + e), the same for every kernel.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    >>> products(Problem(q, k, k, None, Mask(), Score(0.5)))
    1680
    """
    b, _, h, _, t, s, d, e = problem.sizes
    return b * h * t * s * (d + e)


def touches(problem: Problem) -> int:
    """Scores times passes over them: the softmax, what is hidden, biased or capped: b·h·t·s each.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    >>> touches(Problem(q, k, k, None, Mask(), Score(0.5, softcap=2.0)))
    420
    """
    b, _, h, _, t, s, _, _ = problem.sizes
    mask = problem.mask
    hides = not mask.visible is mask.rows is mask.lengths is None
    passes = 1 + hides
    passes += (mask.bias is not None) + (problem.score.softcap is not None)
    return passes * b * h * t * s


def traffic(problem: Problem) -> int:
    """Bytes of query, key, value and result, each met once.

    >>> import torch
    >>> from crossattention.kernels.contract import Score
    >>> from crossattention.mask import Mask
    >>> q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    >>> traffic(Problem(q, k, k, None, Mask(), Score(0.5)))
    2304
    """
    b, _, h, _, t, _, _, e = problem.sizes
    item = problem.query.element_size()
    kept = problem.key.numel() * problem.key.element_size()
    kept += problem.value.numel() * problem.value.element_size()
    return kept + item * (problem.query.numel() + math.prod((b, h, t, e)))
