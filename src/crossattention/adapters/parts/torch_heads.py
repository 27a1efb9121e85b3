"""The maps and heads of a `torch.nn.MultiheadAttention`, as its weights are at this moment.

`in_proj_weight` holds the query's, the keys' and the values' maps, one third each, where all widths
are equal; else each has a parameter of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.adapters.parts.heads import Heads
from crossattention.nn.raw import Affine
from crossattention.nn.sizes import Sizes


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
        Affine(key, biases[1]), Affine(value, biases[2]), sizes, d**-0.5, extra=extra_rows(module)
    )
    return Affine(query, biases[0]), heads


def extra_rows(module: nn.MultiheadAttention) -> tuple[Tensor, Tensor] | None:
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
