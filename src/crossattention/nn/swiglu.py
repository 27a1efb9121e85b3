"""An activation with a gate: silu(x₁) · x₂, where x₁ and x₂ are the two halves of a row.

Paper: Shazeer 2020, "GLU Variants Improve Transformer".
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.argument import FLOATS, check_tensor
from crossattention.errors import ContractError, complaint, describe


class SwiGLU(nn.Module):
    """Gate the second half of each row by the silu of the first: [..., 2·x] -> [..., x].

    Assign it to `FeedForward.activation`, with an `expand` that is twice as wide.

    >>> import torch
    >>> SwiGLU()(torch.ones(1, 3, 8)).shape
    torch.Size([1, 3, 4])
    """

    def forward(self, stream: Tensor) -> Tensor:
        """Map `[..., 2·x]` to `[..., x]`."""
        want, do = "a float tensor [..., 2·x]", "make `expand` twice as wide as `contract` reads"
        check_tensor("stream", stream, FLOATS, want, do)
        if not stream.dim() or stream.shape[-1] % 2:
            raise ContractError(complaint("stream", want, describe(stream), do))
        gate, passed = stream.chunk(2, -1)  # [..., 2·x] -> 2 of [..., x]
        return F.silu(gate) * passed
