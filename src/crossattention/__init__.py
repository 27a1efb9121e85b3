"""Cross-attention for PyTorch: one sequence reads another, from a memory projected once."""

from typing import TYPE_CHECKING

from crossattention.attention.attend import attend, attend_with_lse, attention_weights
from crossattention.attention.cheapest import Cheapest
from crossattention.attention.explain import explain
from crossattention.attention.merge import merge
from crossattention.errors import ContractError, NoKernelError
from crossattention.kernels.costs import Table
from crossattention.mask import from_attention_mask, from_padding_mask
from crossattention.media import from_media
from crossattention.memory import Memory
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.from_torch import from_torch
from crossattention.nn.gated import GatedCrossAttention
from crossattention.nn.multi import MultiCrossAttention
from crossattention.nn.perceiver import Perceiver
from crossattention.nn.pool import AttentionPool
from crossattention.nn.resampler import Resampler
from crossattention.nn.self_attention import SelfAttention
from crossattention.owner import Owner
from crossattention.window import from_window

if TYPE_CHECKING:
    from crossattention.adapters.adopt import adopt, adopted, explain_model, release

__all__ = [
    "AttentionPool",
    "Cheapest",
    "ContractError",
    "CrossAttention",
    "GatedCrossAttention",
    "Memory",
    "MultiCrossAttention",
    "NoKernelError",
    "Owner",
    "Perceiver",
    "Resampler",
    "SelfAttention",
    "Table",
    "adopt",
    "adopted",
    "attend",
    "attend_with_lse",
    "attention_weights",
    "explain",
    "explain_model",
    "from_attention_mask",
    "from_media",
    "from_padding_mask",
    "from_torch",
    "from_window",
    "merge",
    "release",
]

_ADAPTERS = ("adopt", "adopted", "explain_model", "release")


def __getattr__(name: str) -> object:
    if name not in _ADAPTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from crossattention import adapters  # other people's models are looked at when asked for

    return getattr(adapters, name)
