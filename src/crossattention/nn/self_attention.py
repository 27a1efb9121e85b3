"""Self-attention: a stream reads itself, and remembers its own past when read step by step.

    output = W_o · attend(q, k, v),   [q, k, v] = W x

The cache keeps spare capacity, so that a step writes one row instead of copying all; it follows
beams by `select`. Step by step equals all at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from crossattention.attention.attend import read
from crossattention.attention.door import build_mask, check_dropout
from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Kernel, Problem, Score
from crossattention.nn.initialise import initialise


@dataclass(frozen=True)
class Cache:
    """Keys and values of the rows so far: [b, h, capacity, d] each, of which `length` are filled.

    A value: `extended` writes into spare rows and returns a longer cache, and the old one stays
    valid. `written` is shared by all caches over one storage; a cache that is extended a second
    time finds its spare rows taken and copies first. (A compiled graph does not look: there,
    extend each cache once.)

    >>> Cache.empty(torch.zeros(2, 3, 1, 4), capacity=8).length
    0
    """

    key: Tensor
    value: Tensor
    length: int
    written: list[int] = field(default_factory=lambda: [0])

    @classmethod
    def empty(cls, like: Tensor, capacity: int) -> Cache:
        """Make room for `capacity` rows of the heads, width, dtype and device of [b, h, t, d].

        >>> Cache.empty(torch.zeros(2, 3, 1, 4), capacity=8).key.shape
        torch.Size([2, 3, 8, 4])
        """
        b, h, _, d = like.shape
        return cls(like.new_zeros(b, h, capacity, d), like.new_zeros(b, h, capacity, d), 0)

    def extended(self, key: Tensor, value: Tensor) -> Cache:
        """Write rows [b, h, t, d] behind the last; double the capacity when it is full.

        >>> rows = torch.ones(2, 3, 5, 4)
        >>> cache = Cache.empty(rows, capacity=2).extended(rows, rows)
        >>> cache.length, cache.key.shape[2] >= 5
        (5, True)
        """
        end = self.length + key.shape[2]
        kept_key, kept_value, written = self.key, self.value, self.written
        if end > kept_key.shape[2]:
            spare = max(end, 2 * kept_key.shape[2]) - kept_key.shape[2]
            kept_key = nn.functional.pad(kept_key, (0, 0, 0, spare))  # [b, h, capacity, d] grows
            kept_value = nn.functional.pad(kept_value, (0, 0, 0, spare))
            written = [end]
        elif not torch.compiler.is_compiling() and written[0] != self.length:
            kept_key, kept_value, written = kept_key.clone(), kept_value.clone(), [end]
        written[0] = end
        kept_key[:, :, self.length : end] = key
        kept_value[:, :, self.length : end] = value
        return Cache(kept_key, kept_value, end, written)

    def select(self, index: Tensor) -> Cache:
        """Keep the sequences named by `index` [b'], in its order: how the past follows beams.

        >>> Cache.empty(torch.zeros(2, 3, 1, 4), 8).select(torch.tensor([1, 1, 0])).key.shape[0]
        3
        """
        return Cache(self.key[index], self.value[index], self.length, [self.length])


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
        if heads < 1 or width % heads:
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
        if readable is not None:
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
        query, key, value = self._project(stream)
        longer = cache.extended(key, value)
        kept = longer.key[:, :, : longer.length], longer.value[:, :, : longer.length]
        causal = None if stream.shape[1] == 1 else cache.length
        return self._read(query, *kept, None, causal), longer

    def start(self, sequences: int, capacity: int) -> Cache:
        """Make an empty cache for `sequences` query sequences.

        >>> SelfAttention(8, 2).start(sequences=3, capacity=5).key.shape
        torch.Size([3, 2, 5, 4])
        """
        like = next(self.parameters()).new_zeros(sequences, self.heads, 0, self.width // self.heads)
        return Cache.empty(like, capacity)

    def _project(self, stream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if stream.dim() != 3 or stream.shape[-1] != self.width:
            given = f"shape {list(stream.shape)}"
            do = "project it to the layer's width first"
            raise ContractError(complaint("stream", f"[b, t, {self.width}]", given, do))
        split = self.projection(stream).unflatten(-1, (3, self.heads, -1))  # [b, t, 3, h, d]
        query, key, value = split.permute(2, 0, 3, 1, 4)  # 3 of [b, h, t, d]
        return query, key, value

    def _read(
        self, query: Tensor, key: Tensor, value: Tensor,
        readable: Tensor | None, causal: str | int | None,
    ) -> Tensor:  # fmt: skip
        shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        mask, _ = build_mask(
            shape, query.device, readable, None, None, None, causal, readable is not None
        )
        dropout = self.dropout if self.training else 0.0
        problem = Problem(query, key, value, None, mask, Score(self.scale), dropout)
        merged = read(problem, self.kernel).value.transpose(1, 2).flatten(2)  # -> [b, t, c]
        output: Tensor = self.output_projection(merged)
        return output if mask.reads is None else output.masked_fill(~mask.reads[:, 0], 0)
