"""`torch.nn.MultiheadAttention` where it reads another sequence: the same numbers, in less work.

    output = W_o · attend(W_q x, W_k m, W_v m) + b_o

A few query rows over many memory rows read them as they are, so that nothing is projected; a row
that may read nothing gets the output bias, as torch gives it without weights, and never NaN; rows
hidden from all may hold anything. Self-attention (one tensor as query and key) is torch's own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.adapters.parts.heads import Heads
from crossattention.adapters.parts.masks import Masks
from crossattention.adapters.parts.replaced import (
    Replaced,
    Replacing,
    check_replaceable,
    check_takes,
)
from crossattention.adapters.parts.torch_masks import from_torch_masks
from crossattention.errors import ContractError, complaint
from crossattention.nn.raw import Affine
from crossattention.nn.sizes import Sizes

Answer = tuple[Tensor, Tensor | None]
TAKES = (
    "query", "key", "value", "key_padding_mask", "need_weights", "attn_mask",
    "average_attn_weights", "is_causal",
)  # fmt: skip


class MultiheadForward(Replaced):
    """The forward of an adopted `torch.nn.MultiheadAttention`.

    >>> layer = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> forward = MultiheadForward(layer, "auto")
    >>> query, rows = torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    >>> torch.allclose(forward(query, rows, rows)[0], layer(query, rows, rows)[0], atol=1e-6)
    True
    """

    module: nn.MultiheadAttention

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Answer:
        """Read; arguments and results are torch's."""
        module, streams = self.module, _streams(self.module, query, key, value)
        masks = None
        if streams is not None and not (is_causal and attn_mask is None):
            masks = _masks(module, streams, query.dim(), key_padding_mask, attn_mask)
        if streams is None or masks is None:  # self-attention, or for torch to refuse
            answer: Answer = self.stock(
                query, key, value, key_padding_mask, need_weights, attn_mask,
                average_attn_weights, is_causal,
            )  # fmt: skip
            return answer
        read, shown = _read(module, streams, masks, self.form, need_weights)
        output = F.linear(read, module.out_proj.weight, module.out_proj.bias)
        if shown is not None and average_attn_weights:
            shown = shown.mean(1)  # [b, h, t, s] -> [b, t, s]
        if query.dim() == 2:
            return output[0], None if shown is None else shown[0]
        return output if module.batch_first else output.transpose(0, 1), shown


class Multihead(Replacing):
    """Adopt each `torch.nn.MultiheadAttention`.

    >>> layer = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> Multihead().knows(layer)
    True
    """

    kind = "torch.nn.MultiheadAttention"
    answers = MultiheadForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one, with torch's own forward."""
        return (
            isinstance(module, nn.MultiheadAttention)
            and type(module).forward is nn.MultiheadAttention.forward
        )

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its forward is another, or "raw" is asked for and it has rows of its own."""
        check_takes(nn.MultiheadAttention, TAKES)
        check_replaceable(module)
        if form == "raw" and isinstance(module, nn.MultiheadAttention) and _extra(module):
            do = 'pass form="auto"'
            given = '"raw" for a module with add_bias_kv or add_zero_attn'
            raise ContractError(complaint("form", "one that each module can take", given, do))


def heads_of(module: nn.MultiheadAttention) -> tuple[Affine, Heads]:
    """Give the query map and the heads of a module, as its weights are now.

    >>> heads_of(nn.MultiheadAttention(8, 2, kdim=5))[1].sizes.memory_widths
    (5, 8)
    """
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    if module.in_proj_weight is not None:
        query, key, value = module.in_proj_weight.chunk(3)  # [3c, c] -> 3 of [c, c]
    else:
        query, key, value = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    h, d = module.num_heads, module.head_dim
    sizes = Sizes(module.embed_dim, h, h, d, d, (module.kdim, module.vdim))
    heads = Heads(
        Affine(key, biases[1]), Affine(value, biases[2]), sizes, d**-0.5, extra=_extra(module)
    )
    return Affine(query, biases[0]), heads


def _extra(module: nn.MultiheadAttention) -> tuple[Tensor, Tensor] | None:
    """Rows behind the memory's: a learned one, then one of zeros, as the module has them."""
    h, d = module.num_heads, module.head_dim
    pairs = []
    if module.bias_k is not None and module.bias_v is not None:
        pairs.append((module.bias_k.view(h, 1, d), module.bias_v.view(h, 1, d)))
    if module.add_zero_attn:
        zero = module.out_proj.weight.new_zeros(h, 1, d)
        pairs.append((zero, zero))
    if not pairs:
        return None
    keys, values = zip(*pairs, strict=True)
    return torch.cat(keys, 1), torch.cat(values, 1)


def _read(
    module: nn.MultiheadAttention, streams: tuple[Tensor, Tensor, Tensor | None],
    masks: Masks, form: str, need_weights: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Read rows: the heads' values beside each other `[b, t, c]`, and the weights."""
    ask, heads = heads_of(module)
    stream, rows, value_rows = streams
    asked = ask(stream).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)  # -> [b, h, t, d]
    posed = heads.pose(
        asked, rows, value_rows, masks=masks,
        dropout=module.dropout if module.training else 0.0, form=form,
    )  # fmt: skip
    if not need_weights:
        return posed.values().transpose(1, 2).flatten(2), None  # [b, h, t, d] -> [b, t, c]
    values, weights = posed.values_and_weights()
    return values.transpose(1, 2).flatten(2), weights.to(asked.dtype)


def _masks(
    module: nn.MultiheadAttention,
    streams: tuple[Tensor, Tensor, Tensor | None],
    rank: int,
    padding: Tensor | None,
    mask: Tensor | None,
) -> Masks | None:
    if rank == 2 and padding is not None:
        padding = padding[None]  # [s] -> [1, s]
    (b, t, _), s = streams[0].shape, streams[1].shape[1]
    extra = int(module.bias_k is not None) + int(module.add_zero_attn)
    return from_torch_masks(padding, mask, (b, module.num_heads, t, s), extra)


def _streams(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Give query and rows as [b, t, c]; None unless one stream reads another as torch allows."""
    given = (query, key, value)
    if query is key or any(x.is_nested or x.dim() != query.dim() for x in given):
        return None
    if query.dim() not in (2, 3) or any(x.device != query.device for x in given):
        return None
    widths = (module.embed_dim, module.kdim, module.vdim)
    if any(x.shape[-1] != width for x, width in zip(given, widths, strict=True)):
        return None
    if query.dim() == 2:
        query, key, value = query[None], key[None], value[None]  # [t, c] -> [1, t, c]
    elif not module.batch_first:
        query, key, value = (x.transpose(0, 1) for x in given)  # [t, b, c] -> [b, t, c]
    if key.shape[:2] != value.shape[:2] or key.shape[0] != query.shape[0] or module.dropout >= 1:
        return None
    return query, key, None if given[1] is given[2] else value
