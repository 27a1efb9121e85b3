"""`torch.nn.MultiheadAttention` where it reads another sequence: the same numbers, in less work.

    output = W_o · attend(W_q x, W_k m, W_v m) + b_o

A few query rows over many memory rows read them as they are, so that nothing is projected; a row
that may read nothing gets the output bias, as torch gives it without weights, and never NaN; rows
hidden from all may hold anything. Self-attention (one tensor as query and key) is torch's own, and
so is a read without masks in which nothing is to be gained.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.adapters.parts.masks import Masks
from crossattention.adapters.parts.replaced import (
    Replaced,
    Replacing,
    check_replaceable,
    check_takes,
)
from crossattention.adapters.parts.torch_heads import extra_rows, heads_of
from crossattention.adapters.parts.torch_masks import from_torch_masks
from crossattention.errors import ContractError, complaint
from crossattention.nn.form import Life, form_costs

WORTH = 8_000_000  # multiply-adds that take about as long as the checks around them
Answer = tuple[Tensor, Tensor | None]
TAKES = (
    "query", "key", "value", "key_padding_mask", "need_weights", "attn_mask",
    "average_attn_weights", "is_causal",
)  # fmt: skip


class MultiheadForward(Replaced):
    """The forward of an adopted `torch.nn.MultiheadAttention`.

    >>> import torch
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
            if key_padding_mask is not None or attn_mask is not None:
                masks = _masks(module, streams, query.dim(), key_padding_mask, attn_mask)
            elif _gains(module, streams, self.form):
                masks = Masks()
        if streams is None or masks is None:  # self-attention, nothing to gain, or to be refused
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
        if form == "raw" and isinstance(module, nn.MultiheadAttention) and extra_rows(module):
            do = 'pass form="auto"'
            given = '"raw" for a module with add_bias_kv or add_zero_attn'
            raise ContractError(complaint("form", "one that each module can take", given, do))


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


def _gains(
    module: nn.MultiheadAttention, streams: tuple[Tensor, Tensor, Tensor | None], form: str
) -> bool:
    """Whether a read without masks is worth leaving torch's own code for."""
    if form != "auto":
        return True
    (m, t, _), s = streams[0].shape, streams[1].shape[1]
    life = Life(m, s, t, reads=1, dtype=streams[1].dtype)
    costs = form_costs(life, heads_of(module)[1].sizes)
    cheapest = costs["raw" if extra_rows(module) is None else "projected"]
    return costs["projected"].total - cheapest.total > WORTH


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
