"""A pool of the signature and parts of timm's `AttentionPoolLatent`, written for the tests.

timm itself needs torchvision, which the tests do without.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AttentionPoolLatent(nn.Module):
    """Pool rows with latent queries; names and order of parts are timm's."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        latents: int = 1,
        positions: int | None = None,
        norms: bool = False,
        pool: str = "token",
    ) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.latent_len = heads, width // heads, latents
        self.scale = self.head_dim**-0.5
        self.pool, self.fused_attn = pool, True
        self.pos_embed = None if positions is None else nn.Parameter(torch.randn(positions, width))
        self.latent = nn.Parameter(torch.randn(1, latents, width))
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.q_norm: nn.Module = nn.LayerNorm(self.head_dim) if norms else nn.Identity()
        self.k_norm: nn.Module = nn.LayerNorm(self.head_dim) if norms else nn.Identity()
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(0.0)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Pool; one fused path, and one whose mask is added whatever it is."""
        b, s, c = x.shape
        if self.pos_embed is not None:
            x = x + self.pos_embed.unsqueeze(0).to(x.dtype)
        asked = self.q(self.latent.expand(b, -1, -1))
        query = asked.reshape(b, self.latent_len, self.num_heads, self.head_dim).transpose(1, 2)
        both = self.kv(x).reshape(b, s, 2, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        query, key, value = self.q_norm(query), self.k_norm(both[0]), both[1]
        if self.fused_attn:
            read = F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask)
        else:
            scores = (query * self.scale) @ key.transpose(-2, -1)
            if attn_mask is not None:
                scores = scores + attn_mask
            read = scores.softmax(dim=-1) @ value
        x = self.proj_drop(self.proj(read.transpose(1, 2).reshape(b, self.latent_len, c)))
        x = x + self.mlp(self.norm(x))
        if self.pool == "token":
            return x[:, 0]
        return x.mean(1) if self.pool == "avg" else x
