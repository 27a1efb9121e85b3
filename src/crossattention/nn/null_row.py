"""A null row: a learned key and value that every query may always read.

    value = (exp(lse) · read + exp(score) · null) / (exp(lse) + exp(score))
    score = cap(scale · q·k)

It gives a query somewhere to rest when nothing in the memory fits, and makes no row empty. It is
merged with what was read, so it works with every form and kernel and copies no key. Dropout acts
on the weights of real rows only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.argument import check_size
from crossattention.attention.merge import merge
from crossattention.errors import ContractError, complaint


class NullRow(nn.Module):
    """Hold a learned key [g, d] and value [g, e]; assign it to `CrossAttention.null_row`.

    Args:
        memory_heads: g.
        key_width, value_width: d and e.

    >>> row = NullRow(memory_heads=2, key_width=4, value_width=3)
    >>> row.key.shape, row.value.shape
    (torch.Size([2, 4]), torch.Size([2, 3]))
    """

    always_read = True  # no row is empty beside it

    def __init__(self, memory_heads: int, key_width: int, value_width: int) -> None:
        super().__init__()
        check_size("memory_heads", memory_heads, 1, "pass the layer's")
        check_size("key_width", key_width, 1, "pass the layer's")
        check_size("value_width", value_width, 1, "pass the layer's")
        self.key = nn.Parameter(torch.randn(memory_heads, key_width) * key_width**-0.5)
        self.value = nn.Parameter(torch.zeros(memory_heads, value_width))

    def forward(
        self, query: Tensor, read: tuple[Tensor, Tensor], scale: float, softcap: float | None
    ) -> tuple[Tensor, Tensor]:
        """Merge with what was read: value [b, h, t, e] and lse [b, h, t] before and after.

        Args:
            query: `[b, h, t, d]`, projected and normed.
            read: value and lse over the real rows.
            scale, softcap: those of the layer.

        >>> row = NullRow(1, 2, 2)
        >>> nothing = (torch.zeros(1, 1, 1, 2), torch.full((1, 1, 1), -torch.inf))
        >>> row(torch.zeros(1, 1, 1, 2), nothing, 1.0, None)[1].item()
        0.0
        """
        if read[0].shape[-1] != self.value.shape[-1]:
            raise self._foreign(f"values of width {read[0].shape[-1]}")
        repeats = query.shape[1] // self.value.shape[0]
        value = self.value.repeat_interleave(repeats, 0)[:, None]  # [g, e] -> [h, 1, e]
        score = self.score(query, scale, softcap).to(read[1].dtype)
        return merge([read, (value.to(read[0].dtype).expand_as(read[0]), score)])

    def leaves(self, query: Tensor, lse: Tensor, scale: float, softcap: float | None) -> Tensor:
        """Give the part of the weights that real rows keep: exp(lse) / (exp(lse) + exp(score)).

        >>> row = NullRow(1, 2, 2)
        >>> row.leaves(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3), 1.0, None).tolist()
        [[[0.5, 0.5, 0.5]]]
        """
        return torch.sigmoid(lse - self.score(query, scale, softcap).to(lse.dtype))

    def score(self, query: Tensor, scale: float, softcap: float | None) -> Tensor:
        """Score the null row: cap(scale · q·k), [b, h, t, d] -> [b, h, t].

        >>> NullRow(1, 2, 2).score(torch.zeros(1, 1, 3, 2), 1.0, None).tolist()
        [[[0.0, 0.0, 0.0]]]
        """
        if query.shape[1] % self.key.shape[0] or query.shape[-1] != self.key.shape[-1]:
            raise self._foreign(f"{query.shape[1]} heads of width {query.shape[-1]}")
        key = self.key.repeat_interleave(query.shape[1] // self.key.shape[0], 0)[:, None]
        score = (query * key).sum(-1, dtype=torch.promote_types(query.dtype, torch.float32)) * scale
        return score if softcap is None else softcap * torch.tanh(score / softcap)

    def _foreign(self, layer: str) -> ContractError:
        given = f"key {list(self.key.shape)} and value {list(self.value.shape)}"
        do = "make it with the layer's memory_heads, key_width and value_width"
        return ContractError(complaint("null_row", f"made for {layer}", given, do))
