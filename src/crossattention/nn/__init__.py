"""Layers with parameters."""

from crossattention.nn.block import DecoderBlock, EncoderBlock
from crossattention.nn.cache import Cache
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.cross_block import CrossBlock
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.fold_norm import fold_norm
from crossattention.nn.from_torch import from_torch
from crossattention.nn.gated import GatedCrossAttention
from crossattention.nn.joint_block import JointBlock
from crossattention.nn.learned import LearnedQueries
from crossattention.nn.multi import MultiCrossAttention
from crossattention.nn.null_row import NullRow
from crossattention.nn.perceiver import Perceiver
from crossattention.nn.perceiver_decoder import PerceiverDecoder
from crossattention.nn.pool import AttentionPool
from crossattention.nn.pooling_head import PoolingHead, siglip_pooling
from crossattention.nn.position import LearnedPositions, fourier_features, grid_positions
from crossattention.nn.presets import perceiver_latents, q_former
from crossattention.nn.query_former import QueryFormer
from crossattention.nn.resampler import Resampler
from crossattention.nn.resampler_presets import flamingo_resampler, idefics2_resampler
from crossattention.nn.rotary import Rotary
from crossattention.nn.self_attention import SelfAttention
from crossattention.nn.sink import Sink
from crossattention.nn.swiglu import SwiGLU

__all__ = [
    "AttentionPool",
    "Cache",
    "CrossAttention",
    "CrossBlock",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "GatedCrossAttention",
    "JointBlock",
    "LearnedPositions",
    "LearnedQueries",
    "MultiCrossAttention",
    "NullRow",
    "Perceiver",
    "PerceiverDecoder",
    "PoolingHead",
    "QueryFormer",
    "Resampler",
    "Rotary",
    "SelfAttention",
    "Sink",
    "SwiGLU",
    "flamingo_resampler",
    "fold_norm",
    "fourier_features",
    "from_torch",
    "grid_positions",
    "idefics2_resampler",
    "perceiver_latents",
    "q_former",
    "siglip_pooling",
]
