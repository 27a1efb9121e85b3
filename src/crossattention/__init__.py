"""Cross-attention for PyTorch: one sequence reads another, from a memory projected once."""

from crossattention.attention.attend import attend, attend_with_lse, attention_weights
from crossattention.attention.explain import explain
from crossattention.attention.merge import merge
from crossattention.errors import ContractError, NoKernelError
from crossattention.mask import from_attention_mask, from_padding_mask
from crossattention.memory import Memory
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.from_torch import from_torch
from crossattention.nn.self_attention import SelfAttention
from crossattention.owner import Owner

__all__ = [
    "ContractError",
    "CrossAttention",
    "Memory",
    "NoKernelError",
    "Owner",
    "SelfAttention",
    "attend",
    "attend_with_lse",
    "attention_weights",
    "explain",
    "from_attention_mask",
    "from_padding_mask",
    "from_torch",
    "merge",
]
