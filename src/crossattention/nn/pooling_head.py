"""The pooling head of SigLIP's image encoder: a learned probe reads the patches, then thinks.

    x = W_o · attend(W_q p, W_k patches, W_v patches)
    output = x + W_2 · gelu(W_1 · norm(x))

Papers: Zhai et al. 2023, "Sigmoid Loss for Language Image Pre-Training" (SigLIP); Zhai et al. 2022,
"Scaling Vision Transformers" (the head); Lee et al. 2019, "Set Transformer".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crossattention.memory import Memory
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.pool import AttentionPool


class PoolingHead(nn.Module):
    """Pool rows and think about what was read: x + W_2 · gelu(W_1 · norm(x)), x = pool(rows).

    Args:
        width: c, of the rows and of the output.
        heads: h.
        feed_forward: the width between the two maps.
        queries: n, the learned probes.

    Submodules that may be replaced: `pool` (`AttentionPool`), `norm` (`nn.LayerNorm`, epsilon
    1e-6), `feed_forward` (`FeedForward` with torch's tanh form of GELU).

    Differs from transformers' `SiglipMultiheadAttentionPoolingHead`: lengths and `visible` say
    what may be read; the result keeps its query axis, `[b, n, c]` where theirs has `[b, c]`; an
    input without rows is read as 0, of which the feed-forward part then thinks as of any other.

    >>> import torch
    >>> PoolingHead(width=8, heads=2, feed_forward=16)(torch.randn(5, 7, 8)).shape
    torch.Size([5, 1, 8])
    """

    def __init__(self, width: int, heads: int, feed_forward: int, *, queries: int = 1) -> None:
        super().__init__()
        self.pool = AttentionPool(width, heads, queries=queries)
        self.norm: nn.Module = nn.LayerNorm(width, eps=1e-6)
        self.feed_forward = FeedForward(width, feed_forward)
        self.feed_forward.activation = nn.GELU(approximate="tanh")

    def forward(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Pool rows [b, s, c] -> [b, n, c]; arguments as in `AttentionPool.forward`."""
        pooled = self.pool(rows, lengths, visible=visible)
        output: Tensor = pooled + self.feed_forward(self.norm(pooled))
        return output


def siglip_pooling(width: int = 768, heads: int = 12, feed_forward: int = 3072) -> PoolingHead:
    """Build the pooling head of SigLIP's base encoder, or of another size.

    Args:
        width, heads, feed_forward: 1152, 16 and 4304 for the largest encoder (so400m).

    The weights of transformers' head fit as they are: `probe[0]` is `pool.queries.weight`; the
    thirds of `attention.in_proj_weight` and `in_proj_bias` are the query, key and value
    projections, `out_proj` the output projection; `layernorm` is `norm`; `mlp.fc1` and `mlp.fc2`
    are `feed_forward.expand` and `feed_forward.contract`.

    >>> sum(each.numel() for each in siglip_pooling().parameters())
    7087104
    """
    return PoolingHead(width, heads, feed_forward)
