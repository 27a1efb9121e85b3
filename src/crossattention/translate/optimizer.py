"""Optimisers and the learning rate over a run.

Rows and columns of hidden matrices share directions, so Muon (Jordan et al. 2024) steps along the
nearest orthogonal matrix, scaled to AdamW's step length (Liu et al. 2025, arXiv:2502.16982);
embeddings, norms and biases keep AdamW (Loshchilov & Hutter 2019).
"""

from __future__ import annotations

import math

import torch
from torch import nn

from crossattention.errors import ContractError


def build_optimizers(
    model: nn.Module, name: str, weight_decay: float, parts: int = 1
) -> list[torch.optim.Optimizer]:
    """Build the optimisers of a model, at rate 1; the schedule sets the rate at each step.

    Args:
        model: its parameters of two dimensions outside embeddings count as hidden matrices.
        name: "adamw", or "muon" for hidden matrices with AdamW for the rest.
        weight_decay: shrinkage of matrices at each step, times the rate; norms and biases are not
            shrunk.
        parts: how many optimisers share the hidden matrices, so that threads can share the work.

    Raises:
        ContractError: another name.
    """
    if name not in ("adamw", "muon"):
        raise ContractError(f"`optimizer` must be 'adamw' or 'muon', got {name!r}; name one.")
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    every = [p for p in model.parameters() if p.requires_grad]
    hidden = [p for p in every if p.ndim == 2 and id(p) not in tables]
    embeddings = [p for p in every if id(p) in tables]
    vectors = [p for p in every if p.ndim != 2]
    shrunk = embeddings if name == "muon" else embeddings + hidden
    groups = [
        {"params": shrunk, "weight_decay": weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    rest = torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=1.0, betas=(0.9, 0.98), fused=True
    )
    if name == "adamw" or not hidden:
        return [rest]
    shares = [hidden[first::parts] for first in range(min(parts, len(hidden)))]
    muons = [
        torch.optim.Muon(share, lr=1.0, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        for share in shares
    ]
    return [*muons, rest]


def rate_at(step: int, peak: float, warmup: int, total: int, schedule: str) -> float:
    """Return the learning rate of a step: a straight rise to `peak`, then a fall to zero at
    `total`.

    Args:
        step: from 0.
        peak: the highest rate.
        warmup: steps of the rise.
        total: steps of the run.
        schedule: "cosine" or "linear", the shape of the fall.

    Raises:
        ContractError: another schedule.

    >>> [round(rate_at(step, 1.0, 2, 6, "linear"), 2) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """
    if schedule not in ("cosine", "linear"):
        raise ContractError(f"`schedule` must be 'cosine' or 'linear', got {schedule!r}; name one.")
    if step < warmup:
        return peak * (step + 1) / warmup
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done)))
