"""Self-attention: a stream reads itself, and remembers its own past when read step by step.

    output = W_o · attend(q, k, v),   [q, k, v] = W x

The cache keeps spare capacity, so that a step writes one row instead of copying all; it follows
beams by `select`. Step by step equals all at once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.argument import check_flag, check_size, check_tensor
from crossattention.attention.attend import read
from crossattention.attention.door import check_dropout
from crossattention.attention.hidden import build_mask
from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.contract import Kernel, Problem, Score
from crossattention.nn.cache import Cache
from crossattention.nn.few_rows import mapped
from crossattention.nn.initialise import initialise
from crossattention.nn.project import check_stream, finish, heads_of


class SelfAttention(nn.Module):
    """Let each row of a stream read the stream: W_o · concat_h softmax(q_h·k_h · d^-½) v_h.

    Args:
        width: c.
        heads: h; c must be a multiple.
        bias: whether the projections have one.
        dropout: probability that a weight is dropped in training.

    Submodules: `projection` (c -> 3c: queries, keys, values), `output_projection`.

    >>> layer = SelfAttention(width=8, heads=2)
    >>> layer(torch.randn(1, 5, 8), causal=True).shape
    torch.Size([1, 5, 8])
    """

    def __init__(self, width: int, heads: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        check_size("width", width, 1, "pass the width of the stream")
        check_size("heads", heads, 1, "pass how many heads read")
        check_flag("bias", bias, "choose whether the projections have one")
        if width % heads:
            given = f"width {width} over {heads} heads"
            raise ContractError(complaint("width", "a multiple of heads", given, "change either"))
        self.width, self.heads = width, heads
        self.dropout = check_dropout(dropout)
        self.scale = (width // heads) ** -0.5
        self.kernel: str | Kernel = "auto"
        self.projection: nn.Module = nn.Linear(width, 3 * width, bias)
        self.output_projection: nn.Module = nn.Linear(width, width, bias)
        initialise(self)

    def forward(
        self, stream: Tensor, *, readable: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Read all at once.

        Args:
            stream: `[b, t, c]`.
            readable: bool `[b, t]`, True = a real row that may be read; None: all are.
            causal: whether row i reads rows up to i only.
        Returns:
            `[b, t, c]`; 0 for a row that may read nothing.
        """
        query, key, value = self._project(stream)
        check_flag("causal", causal, "True lets row i read rows up to i only")
        if readable is not None:
            self._check_readable(readable, stream)
            key = key.masked_fill(~readable[:, None, :, None], 0)
            value = value.masked_fill(~readable[:, None, :, None], 0)
        return self._read(query, key, value, readable, "top_left" if causal else None)

    def step(self, stream: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Read the past and the new rows, in causal order.

        Args:
            stream: `[b, t, c]`, the rows that follow those in the cache (often t = 1).
            cache: the past; from `start`.
        Returns:
            `[b, t, c]`, and the longer cache.
        """
        if not isinstance(cache, Cache):
            raise ContractError(
                complaint("cache", "a Cache", describe(cache), "take it from `start`")
            )
        query, key, value = self._project(stream)
        longer = cache.extended(key, value)
        kept = longer.keys.rows, longer.values.rows
        causal = None if stream.shape[1] == 1 else cache.length
        return self._read(query, *kept, None, causal), longer

    def start(self, sequences: int, capacity: int) -> Cache:
        """Make an empty cache for `sequences` query sequences.

        >>> SelfAttention(8, 2).start(sequences=3, capacity=5).keys.storage.shape
        torch.Size([3, 2, 5, 4])
        """
        check_size("sequences", sequences, 0, "count the query sequences")
        check_size("capacity", capacity, 0, "count the rows to make room for")
        like = next(self.parameters()).new_zeros(sequences, self.heads, 0, self.width // self.heads)
        return Cache.empty(like, capacity)

    def _project(self, stream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        check_stream("stream", stream, self.width, self.projection)
        width = self.width // self.heads
        split = heads_of("projection", mapped(self.projection, stream), 3 * self.heads, width)
        query, key, value = split.chunk(3, 1)  # [b, 3·h, t, d] -> 3 of [b, h, t, d]
        return query, key, value

    def _check_readable(self, readable: Tensor, stream: Tensor) -> None:
        want = f"a bool tensor {list(stream.shape[:2])} on {stream.device}, True = a real row"
        do = "compare lengths or padding first"
        check_tensor("readable", readable, (torch.bool,), want, do, rank=2)
        if readable.shape != stream.shape[:2] or readable.device != stream.device:
            raise ContractError(complaint("readable", want, describe(readable), do))

    def _read(
        self, query: Tensor, key: Tensor, value: Tensor,
        readable: Tensor | None, causal: str | int | None,
    ) -> Tensor:  # fmt: skip
        shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        mask, _ = build_mask(
            shape, query.device, readable, None, None, None, causal, readable is not None
        )
        dropout = check_dropout(self.dropout) if self.training else 0.0
        problem = Problem(query, key, value, None, mask, Score(self.scale), dropout)
        merged = read(problem, self.kernel).value.transpose(1, 2).flatten(2)  # -> [b, t, c]
        return finish(merged, self.output_projection, mask.reads)
