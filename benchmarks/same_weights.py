"""Take over the weights of torch's transformer layers, block by block."""

from __future__ import annotations

import torch
from torch import nn

import crossattention as xa
from crossattention import nn as xnn


def decoder_block(theirs: nn.TransformerDecoderLayer, norm: str) -> xnn.DecoderBlock:
    """Build a block with the weights of a torch decoder layer; `norm` is "pre" or "post"."""
    width, hidden = theirs.linear1.in_features, theirs.linear1.out_features
    dropout = theirs.dropout1.p
    ours = xnn.DecoderBlock(width, theirs.self_attn.num_heads, hidden, dropout=dropout, norm=norm)
    ours.cross_attention = xa.from_torch(theirs.multihead_attn)
    _copy_self(theirs.self_attn, ours.self_attention)
    _copy_feed_forward(theirs, ours)
    ours.around_self.norm.load_state_dict(theirs.norm1.state_dict())
    ours.around_cross.norm.load_state_dict(theirs.norm2.state_dict())
    ours.around_feed.norm.load_state_dict(theirs.norm3.state_dict())
    return ours.train(theirs.training)


def encoder_block(theirs: nn.TransformerEncoderLayer, norm: str) -> xnn.EncoderBlock:
    """Build a block with the weights of a torch encoder layer; `norm` is "pre" or "post"."""
    width, hidden = theirs.linear1.in_features, theirs.linear1.out_features
    dropout = theirs.dropout1.p
    ours = xnn.EncoderBlock(width, theirs.self_attn.num_heads, hidden, dropout=dropout, norm=norm)
    _copy_self(theirs.self_attn, ours.self_attention)
    _copy_feed_forward(theirs, ours)
    ours.around_self.norm.load_state_dict(theirs.norm1.state_dict())
    ours.around_feed.norm.load_state_dict(theirs.norm2.state_dict())
    return ours.train(theirs.training)


@torch.no_grad()
def _copy_self(theirs: nn.MultiheadAttention, ours: xa.SelfAttention) -> None:
    weights = {
        "weight": theirs.in_proj_weight,
        "bias": theirs.in_proj_bias,
    }  # queries, keys, values
    ours.projection.load_state_dict(weights)
    ours.output_projection.load_state_dict(theirs.out_proj.state_dict())


def _copy_feed_forward(
    theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer,
    ours: xnn.EncoderBlock | xnn.DecoderBlock,
) -> None:
    ours.feed_forward.expand.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.contract.load_state_dict(theirs.linear2.state_dict())
