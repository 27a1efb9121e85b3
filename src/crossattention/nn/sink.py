"""A sink: one learned score for each head, which takes weight and gives nothing.

    weight_s = exp(score_s) / (exp(lse) + exp(sink))        the rest of the weight reads zeros

A head that finds nothing worth reading can rest on it. It is merged with what was read, so it
works with every form and kernel. A row that may read nothing stays empty: zeros were all it read.
Paper: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks"; as one score a
head: gpt-oss (OpenAI 2025).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.argument import check_size
from crossattention.attention.merge import merge
from crossattention.errors import ContractError, complaint, describe
from crossattention.nn.null_row import NullRow


class Sink(nn.Module):
    """Hold a learned score [h]; assign it to `CrossAttention.null_row`.

    The score is compared with the scaled, capped and biased scores as it is.

    Args:
        heads: h.

    Differs from `NullRow`: its score does not depend on the query, and its value is 0.

    >>> sink = Sink(heads=2)
    >>> value, lse = sink(torch.zeros(1, 2, 3, 4), (torch.ones(1, 2, 3, 4), torch.zeros(1, 2, 3)))
    >>> value.unique().item()
    0.5
    """

    always_read = False  # it holds nothing to read

    def __init__(self, heads: int) -> None:
        super().__init__()
        check_size("heads", heads, 1, "pass the layer's")
        self.logit = nn.Parameter(torch.zeros(heads))

    def forward(
        self,
        query: Tensor,
        read: tuple[Tensor, Tensor],
        scale: float = 1.0,
        softcap: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Let the sink take its weight: value [b, h, t, e] and lse [b, h, t] before and after."""
        score = self.score(query).to(read[1].dtype)
        return merge([read, (torch.zeros_like(read[0]), score)])

    def leaves(
        self, query: Tensor, lse: Tensor, scale: float = 1.0, softcap: float | None = None
    ) -> Tensor:
        """Give the part of the weights that rows keep: exp(lse) / (exp(lse) + exp(sink)).

        >>> Sink(1).leaves(torch.zeros(1, 1, 3, 2), torch.zeros(1, 1, 3)).tolist()
        [[[0.5, 0.5, 0.5]]]
        """
        return torch.sigmoid(lse - self.score(query).to(lse.dtype))

    def score(self, query: Tensor) -> Tensor:
        """Give the sink's score to each query row, [b, h, t, d] -> [b, h, t].

        >>> Sink(2).score(torch.zeros(1, 2, 3, 4)).shape
        torch.Size([1, 2, 3])
        """
        if query.shape[1] != self.logit.shape[0]:
            want, given = f"made for {query.shape[1]} heads", f"{self.logit.shape[0]} scores"
            raise ContractError(complaint("sink", want, given, "make it with the layer's heads"))
        return self.logit[:, None].expand(query.shape[:3])


def check_null_row(row: NullRow | Sink | None) -> None:
    """Check what a layer was assigned as its null row.

    >>> check_null_row(Sink(2))
    """
    if row is not None and not isinstance(row, NullRow | Sink):
        do = "assign a NullRow, a Sink, or None"
        given = describe(row)
        raise ContractError(complaint("null_row", "a NullRow or a Sink", given, do))
