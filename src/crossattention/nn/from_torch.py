"""Take over the weights of `torch.nn.MultiheadAttention`.

The same numbers as the module, for query and memory of the same or of different widths; torch's
`key_padding_mask` becomes `lengths`, or `visible = from_padding_mask(key_padding_mask)`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.errors import ContractError, complaint, describe
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.null_row import NullRow


def from_torch(module: nn.MultiheadAttention) -> CrossAttention:
    """Build a `CrossAttention` with the weights of a `torch.nn.MultiheadAttention`.

    Args:
        module: any, with `kdim` and `vdim`, with or without biases; the weights are copied.
            `add_bias_kv` becomes the layer's null row, `add_zero_attn` a null row of zeros.
    Returns:
        A layer in the module's mode, dtype and device. It is batch-first whatever the module is.
    Raises:
        ContractError: another kind of module, or both kinds of extra row at once.

    Differs from the module: an empty row adds nothing, where torch gives NaN or the output bias.

    >>> theirs = nn.MultiheadAttention(8, 2, kdim=5, vdim=3, batch_first=True)
    >>> from_torch(theirs).sizes.memory_widths
    (5, 3)
    """
    if not isinstance(module, nn.MultiheadAttention):
        do = "build a CrossAttention and load its projections"
        want = "a torch.nn.MultiheadAttention"
        raise ContractError(complaint("module", want, describe(module), do))
    if module.bias_k is not None and module.add_zero_attn:
        do = "a layer has one null row; drop either"
        given = "add_bias_kv and add_zero_attn"
        raise ContractError(complaint("module", "of at most one extra row", given, do))
    query, key, value = _projection_weights(module)
    layer = CrossAttention(
        module.embed_dim,
        module.num_heads,
        memory_width=(module.kdim, module.vdim),
        bias=module.in_proj_bias is not None,
        dropout=module.dropout,
    ).to(query.device, query.dtype)
    state = {"query": query, "key": key, "value": value}
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    with torch.no_grad():
        for (name, weight), bias in zip(state.items(), biases, strict=True):
            linear = layer.get_submodule(f"{name}_projection")
            linear.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
        layer.output_projection.load_state_dict(module.out_proj.state_dict())
        if module.bias_k is not None or module.add_zero_attn:
            layer.null_row = _null_row(module, layer)
    return layer.train(module.training)


def _projection_weights(module: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor]:
    if module.in_proj_weight is not None:
        query, key, value = module.in_proj_weight.chunk(3)  # [3c, c] -> 3 of [c, c]
        return query, key, value
    return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight


def _null_row(module: nn.MultiheadAttention, layer: CrossAttention) -> NullRow:
    like = module.out_proj.weight
    row = NullRow(layer.sizes.heads, layer.sizes.key_width, layer.sizes.value_width)
    row = row.to(like.device, like.dtype)
    if module.bias_k is None or module.bias_v is None:
        for parameter in row.parameters():
            nn.init.zeros_(parameter).requires_grad_(False)
    else:
        row.key.copy_(module.bias_k.view_as(row.key))  # [1, 1, c] -> [h, d]
        row.value.copy_(module.bias_v.view_as(row.value))
    return row
