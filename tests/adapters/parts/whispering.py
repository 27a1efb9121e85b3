"""An attention module of the signature of openai-whisper's, for where that is not installed."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """Read itself, or `xa`, whose keys and values are kept in `kv_cache` by hooks on the maps."""

    use_sdpa = True

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.n_head = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Tensor,
        xa: Tensor | None = None,
        mask: Tensor | None = None,
        kv_cache: dict[nn.Module, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Read; the clips must be as many as the sequences, or one."""
        query, rows = self.query(x), x if xa is None else xa
        if kv_cache is None or xa is None or self.key not in kv_cache:
            key, value = self.key(rows), self.value(rows)
        else:
            key, value = kv_cache[self.key], kv_cache[self.value]
        read, scores = self.qkv_attention(query, key, value, mask)
        return self.out(read), scores

    def qkv_attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Read fused, or show the scores."""
        q, k, v = (x.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for x in (q, k, v))
        if self.use_sdpa:
            read = F.scaled_dot_product_attention(q, k, v, is_causal=mask is not None)
            return read.transpose(1, 2).flatten(2), None
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores + mask[: q.shape[2], : q.shape[2]]
        read = torch.softmax(scores, -1) @ v
        return read.transpose(1, 2).flatten(2), scores.detach()


MultiHeadAttention.__module__ = "whisper.model"
