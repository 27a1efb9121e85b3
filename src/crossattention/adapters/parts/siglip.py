"""The pooling heads of SigLIP and SigLIP 2: one learned query, the same for every image.

    x = W_o · attend(W_q p, W_k patches, W_v patches) + b_o,     output = x + mlp(norm(x))

The query is folded through the key map once a call, for the whole batch, and the patches are read
as they are: neither keys nor values are made. It is folded anew at each call, so that no change of
the weights can be missed. Papers: Zhai et al. 2023 (SigLIP); Tschannen et al. 2025 (SigLIP 2).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.adapters.parts.masks import Masks
from crossattention.adapters.parts.multihead import Multihead
from crossattention.adapters.parts.named import check_kind, kind_of
from crossattention.adapters.parts.replaced import Replaced, Replacing, check_replaceable
from crossattention.adapters.parts.torch_heads import heads_of
from crossattention.errors import ContractError, complaint, describe

KINDS = (
    (
        "transformers.models.siglip.modeling_siglip",
        "SiglipMultiheadAttentionPoolingHead",
        ("hidden_state",),
    ),
    (
        "transformers.models.siglip2.modeling_siglip2",
        "Siglip2MultiheadAttentionPoolingHead",
        ("hidden_state", "attention_mask"),
    ),
)


class SiglipForward(Replaced):
    """The forward of an adopted pooling head of SigLIP or SigLIP 2."""

    def __call__(self, hidden_state: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Pool patches `[b, s, c]` into `[b, c]`; arguments are the class's."""
        head: Any = self.module
        if attention_mask is not None and attention_mask.dim() != 2:
            answer: Tensor = self.stock(hidden_state, attention_mask)
            return answer
        read = read_constant(head.attention, head.probe, hidden_state, attention_mask, self.form)
        mapped = head.attention.out_proj
        pooled = F.linear(read, mapped.weight, mapped.bias)
        output: Tensor = pooled + head.mlp(head.layernorm(pooled))
        return output[:, 0]


class SiglipPooling(Replacing):
    """Adopt the pooling heads of SigLIP and SigLIP 2.

    >>> SiglipPooling().knows(nn.Linear(2, 2))
    False
    """

    kind = "SigLIP's and SigLIP 2's pooling heads (transformers)"
    answers = SiglipForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        return kind_of(module, KINDS) is not None

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if the head is built otherwise than it was."""
        check_kind(module, KINDS)
        check_replaceable(module)
        attention, probe = (getattr(module, name, None) for name in ("attention", "probe"))
        if not isinstance(attention, nn.MultiheadAttention) or not isinstance(probe, Tensor):
            want, do = "with a probe that torch's attention asks", "leave this head out"
            raise ContractError(complaint("module", want, describe(module), do))
        Multihead().check(attention, form)


def read_constant(
    attention: nn.MultiheadAttention,
    probe: Tensor,
    rows: Tensor,
    attention_mask: Tensor | None,
    form: str,
) -> Tensor:
    """Read rows `[b, s, c]` with the same query rows `[1, n, c]` for all: `[b, n, c]`.

    An attention mask `[b, s]` (1 = real) becomes a bias of the lowest finite float, as the heads
    themselves have it: an image of padding alone is averaged.

    >>> layer = nn.MultiheadAttention(8, 2)
    >>> read_constant(layer, torch.ones(1, 1, 8), torch.ones(3, 5, 8), None, "auto").shape
    torch.Size([3, 1, 8])
    """
    ask, heads = heads_of(attention)
    asked = ask(probe).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)  # [1, h, n, d]
    masks = Masks()
    if attention_mask is not None:
        lowest = torch.finfo(asked.dtype).min
        hidden = ~attention_mask.bool()[:, None, None, :]  # [b, s] -> [b, 1, 1, s]
        masks = Masks(bias=torch.zeros_like(hidden, dtype=asked.dtype).masked_fill(hidden, lowest))
    dropout = attention.dropout if attention.training else 0.0
    posed = heads.pose(asked, rows, masks=masks, dropout=dropout, form=form)
    read = posed.values(lowest=attention_mask is not None)
    return read.transpose(1, 2).flatten(2)  # [b, h, n, d] -> [b, n, c]
