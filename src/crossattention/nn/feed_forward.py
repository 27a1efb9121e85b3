"""The feed-forward part of a block: two maps of each row by itself, and an activation between.

    W_2 · activation(W_1 x)

Paper: Vaswani et al. 2017, "Attention Is All You Need", section 3.3.
"""

from __future__ import annotations

from torch import Tensor, nn

from crossattention.argument import FLOATS, check_size, check_tensor
from crossattention.nn.few_rows import mapped
from crossattention.nn.initialise import initialise
from crossattention.nn.project import check_kind


class FeedForward(nn.Module):
    """Map each row by itself: W_2 · activation(W_1 x).

    Args:
        width: c, of the rows.
        hidden: the width between the two maps.

    Submodules that may be replaced: `expand` and `contract` (Xavier-uniform, biases 0),
    `activation` (`nn.ReLU`).

    >>> FeedForward(width=8, hidden=32)
    FeedForward(
      (expand): Linear(in_features=8, out_features=32, bias=True)
      (activation): ReLU()
      (contract): Linear(in_features=32, out_features=8, bias=True)
    )
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        check_size("width", width, 1, "pass the width of the stream")
        check_size("hidden", hidden, 1, "pass the width between the two maps")
        self.expand: nn.Module = nn.Linear(width, hidden)
        self.activation: nn.Module = nn.ReLU()
        self.contract: nn.Module = nn.Linear(hidden, width)
        initialise(self)

    def forward(self, stream: Tensor) -> Tensor:
        """Map `[..., c]` to `[..., c]`."""
        want, do = "a float tensor [..., c]", "pass rows of the layer's width"
        check_tensor("stream", stream, FLOATS, want, do)
        check_kind("stream", stream, self.expand)
        return mapped(self.contract, self.activation(mapped(self.expand, stream)))
