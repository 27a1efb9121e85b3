"""Work on shares of a batch at once, a thread each: gradients of the whole from gradients of parts.

    ∇ loss = sum_k (n_k / n) ∇ loss_k

where share k has n_k of the batch's n real tokens (linked rows, for the alignment). Threads beat
torch's own where a model's products are too small to be cut: each works through a whole model
without waiting for the other at every product. With more than one worker the draws of dropout
depend on who comes first, so a run repeats exactly with one worker only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor, nn

from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.batches import Batch
from crossattention.translate.objective import Losses, losses

Result = TypeVar("Result")


class Workers:
    """A number of threads that share the work of a training step.

    Args:
        count: threads; 1 works in the caller's own.

    >>> Workers(2).each([lambda: 1, lambda: 2, lambda: 3])
    [1, 2, 3]
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.pool = ThreadPoolExecutor(count) if count > 1 else None

    def each(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run every task, and give their results in order."""
        if self.pool is None:
            return [task() for task in tasks]
        threads = torch.get_num_threads()
        torch.set_num_threads(max(1, threads // self.count))
        try:
            return list(self.pool.map(lambda task: task(), tasks))
        finally:
            torch.set_num_threads(threads)

    def backward(
        self, model: EncoderDecoder, batch: Batch, smoothing: float, alignment: float
    ) -> Losses:
        """Add the gradient of a batch's loss to the model's parameters.

        Args:
            model, batch, smoothing: as in `losses`.
            alignment: weight of the alignment loss.
        Returns:
            The batch's losses, without a graph.
        """
        shares = [share for share in _shares(batch, self.count) if len(share.source)]
        parameters = [p for p in model.parameters() if p.requires_grad]
        kind = batch.source.device.type
        lowered = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

        def work(share: Batch) -> tuple[Losses, Sequence[Tensor | None]]:
            with torch.autocast(kind, lowered[1], enabled=lowered[0], cache_enabled=False):
                found = _weighted(losses(model, share, smoothing), share, batch)
            total = found.translation
            if found.alignment is not None:
                total = total + alignment * found.alignment
            return found, torch.autograd.grad(total, parameters, allow_unused=True)

        done = self.each([lambda share=share: work(share) for share in shares])  # type: ignore[misc]
        for _, gradients in done:
            _add(parameters, gradients)
        translation = torch.stack([found.translation.detach() for found, _ in done]).sum()
        aligned = [f.alignment.detach() for f, _ in done if f.alignment is not None]
        return Losses(translation, torch.stack(aligned).sum() if aligned else None)


def _shares(batch: Batch, count: int) -> list[Batch]:
    if count == 1:
        return [batch]
    return [
        Batch(*(None if part is None else part[first::count] for part in batch))  # type: ignore[arg-type]
        for first in range(count)
    ]


def _weighted(found: Losses, share: Batch, batch: Batch) -> Losses:
    """Scale a share's means so that shares add up to the means of the whole batch."""
    if share is batch:
        return found
    tokens = (share.target_out != 0).sum() / (batch.target_out != 0).sum()
    if found.alignment is None or share.links is None or batch.links is None:
        return Losses(found.translation * tokens, None)
    linked = share.links.sum() / batch.links.sum().clamp_min(1)
    return Losses(found.translation * tokens, found.alignment * linked)


def _add(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
