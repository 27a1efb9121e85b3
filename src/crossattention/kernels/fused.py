"""Torch's own fused kernel, where it is right.

`scaled_dot_product_attention` never holds the scores, so it wins where many query rows read many
memory rows. It refuses what torch would silently compute by another, unfused path.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from crossattention.kernels.contract import Cost, Problem, Reading, is_mixed, plainly
from crossattention.kernels.count import products, touches, traffic
from crossattention.kernels.first_order import first_order
from crossattention.kernels.fold import Folded, fold


@dataclass(frozen=True)
class Fused:
    """Compute with torch's fused attention.

    >>> Fused().name
    'fused'
    """

    name: str = "fused"

    def refuses(self, problem: Problem) -> list[str]:
        """List what torch's fused kernels lack."""
        on_cpu = problem.query.device.type == "cpu"
        bias = problem.mask.bias
        reasons = {
            "it has no heads of width 0": problem.query.shape[-1] == 0,
            "it has no soft cap": problem.score.softcap is not None,
            "query, key and value must have one dtype": not (
                problem.query.dtype == problem.key.dtype == problem.value.dtype
            ),
            "key and value must have one head width": (
                problem.query.shape[-1] != problem.value.shape[-1]
            ),
            "it has no dropout: torch would leave its fused path, or hide the weights' total": (
                problem.dropout > 0
            ),
            "its bias has no gradient": bias is not None and _needs_gradient(bias),
            "its log-sum-exp has no gradient": problem.wants_lse and problem.wants_gradient,
            "it has no forward differentiation": (
                not torch.compiler.is_compiling() and forward_ad._current_level >= 0
            ),
            "its log-sum-exp is offered on the CPU only": problem.wants_lse and not on_cpu,
        }
        return [words for words, refused in reasons.items() if refused]

    def cost(self, problem: Problem) -> Cost:
        """Count the products, and keys and values read again by each tile of 32 query rows."""
        b, m, h, g, t, _, _, _ = problem.sizes
        rows = -(-(b * h * t) // max(m * g, 1))  # query rows of each memory and memory head
        item = problem.key.element_size()
        kept = item * (problem.key.numel() + problem.value.numel())
        again = kept * (rows // 32)
        if rows == 1 and item < 4:  # torch reads for a single half-precision row by a slow path
            again = 2 * kept
        pieces = m * g * -(-rows // 32) if rows > 1 else 0
        return Cost(products(problem), traffic(problem) + again, pieces, touches(problem))

    def run(self, problem: Problem) -> Reading:
        """Compute."""
        if _is_bare(problem):
            query, key, value = problem.query, problem.key, problem.value
            scale = problem.score.scale
            return Reading(F.scaled_dot_product_attention(query, key, value, scale=scale))
        folded = fold(problem)
        query, key, value = (
            _plain(first_order(each, self.name))
            for each in (folded.query, problem.key, problem.value)
        )
        mask, scale = _additive_or_bool(folded), problem.score.scale
        lse = None
        with plainly(query.device):
            if problem.wants_lse and query.numel() and key.numel():  # torch divides by 0 on 0 rows
                if mask is not None and mask.dtype == torch.bool:
                    mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
                read, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
                    query, key, value, attn_mask=mask, scale=scale
                )
            else:
                read = F.scaled_dot_product_attention(
                    query, key, value, attn_mask=mask, scale=scale
                )
        if folded.reads is not None:
            read = read.masked_fill(~folded.reads, 0)
        if not problem.wants_lse:
            return Reading(folded.unfold(read))
        return Reading(folded.unfold(read), folded.unfold(_finish(lse, read, folded))[..., 0])


def _is_bare(problem: Problem) -> bool:
    """Whether torch's call is all there is to do: no mask, nothing to fold, copy, switch or add."""
    query, key, value, owner, mask, _, _, wants_lse = problem
    return (
        owner is None
        and mask.rows is mask.visible is mask.bias is mask.reads is None
        and not wants_lse
        and query.size(1) == key.size(1)
        and query.is_contiguous()
        and key.is_contiguous()
        and value.is_contiguous()
        and not problem.wants_gradient
        and not is_mixed()
    )


def _needs_gradient(tensor: Tensor) -> bool:
    return torch.is_grad_enabled() and tensor.requires_grad


def _plain(tensor: Tensor) -> Tensor:
    """Copy broadcast or transposed layouts, which the kernel's tails do not expect."""
    if tensor.is_contiguous():
        return tensor
    strides = zip(tensor.stride(), tensor.shape, strict=True)
    expanded = any(stride == 0 and size > 1 for stride, size in strides)
    return tensor.contiguous() if expanded or tensor.stride(-1) != 1 else tensor


def _additive_or_bool(folded: Folded) -> Tensor | None:
    """Build the one mask torch takes; empty rows are opened here and erased afterwards."""
    visible, reads = folded.visible, folded.reads
    if visible is not None and reads is not None:
        visible = visible | ~reads
    if folded.bias is None:
        return visible
    bias = folded.bias.to(torch.promote_types(folded.query.dtype, torch.float32))
    if visible is not None:
        bias = bias.masked_fill(~visible, -torch.inf)
    return bias if reads is None else bias.masked_fill(~reads, 0)


def _finish(lse: Tensor | None, read: Tensor, folded: Folded) -> Tensor:
    """Add what the softmax does not see, and mark empty rows; [m, g, n·r·t] -> [..., 1]."""
    if lse is None:  # no query rows, or a memory of length 0
        wide = torch.promote_types(read.dtype, torch.float32)
        return read.new_full((*read.shape[:-1], 1), -torch.inf, dtype=wide)
    finished = lse[..., None]
    if folded.offset is not None:
        finished = finished + folded.offset.to(finished.dtype) * folded.problem.score.scale
    return finished if folded.reads is None else finished.masked_fill(~folded.reads, -torch.inf)
