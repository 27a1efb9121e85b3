"""One `torch.nn.TransformerDecoderLayer`, a step at a time, in its own weights and its own order.

post-norm   x = norm(x + part(x)),      pre-norm   x = x + part(norm(x))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from crossattention.adapters.parts.heads import pose
from crossattention.adapters.parts.masks import Masks
from crossattention.adapters.parts.torch_heads import heads_of
from crossattention.attention.attend import read
from crossattention.content import Content
from crossattention.kernels.contract import Score
from crossattention.memory import Memory
from crossattention.nn.cache import Cache
from crossattention.nn.form import Life, choose_form, form_costs
from crossattention.nn.pose import answer
from crossattention.nn.pose import pose as pose_memory
from crossattention.nn.stamp import stamp_of


@dataclass(frozen=True)
class SteppedLayer:
    """A layer, and the number under which it files what it writes into memories.

    >>> import torch
    >>> stepped = SteppedLayer(nn.TransformerDecoderLayer(8, 2, 16), number=0)
    >>> memory = stepped.remember(Memory.of(torch.randn(1, 5, 8)), Life(1, 5), "auto")
    >>> stepped.step(torch.randn(1, 1, 8), memory, stepped.start(1, 4), None)[0].shape
    torch.Size([1, 1, 8])
    """

    layer: nn.TransformerDecoderLayer
    number: int

    @property
    def width(self) -> int:
        """The width of the stream, c."""
        width: int = self.layer.self_attn.embed_dim
        return width

    def remember(self, memory: Memory, life: Life, form: str) -> Memory:
        """Write keys and values `[m, h, s, d]`, or that the rows are read as they are."""
        reader = self.layer.multihead_attn
        heads, stamp = heads_of(reader)[1], stamp_of(reader)
        life = life._replace(dtype=reader.out_proj.weight.dtype)
        costs = form_costs(life, heads.sizes)
        if choose_form(form, costs, heads.refusals()) == "raw":
            return memory.written(self.number, Content(stamp))
        key, value = heads.project(*memory.holding.rows().kept())
        kept = Content.of(stamp, key.contiguous(), value.contiguous())  # many reads lie ahead
        return memory.written(self.number, kept)

    def start(self, sequences: int, capacity: int) -> Cache:
        """Make an empty past."""
        reader = self.layer.self_attn
        like = reader.out_proj.weight.new_zeros(sequences, reader.num_heads, 0, reader.head_dim)
        return Cache.empty(like, capacity)

    def step(
        self, stream: Tensor, memory: Memory, past: Cache, visible: Tensor | None
    ) -> tuple[Tensor, Cache]:
        """Map rows `[b, t, c]` that follow the past; return the longer past, too."""
        layer, kept = self.layer, [past]

        def itself(rows: Tensor) -> Tensor:
            output, kept[0] = self._read_past(rows, kept[0])
            return _mapped(layer.dropout1, output)

        def other(rows: Tensor) -> Tensor:
            return _mapped(layer.dropout2, self._read_memory(rows, memory, visible))

        def feed(rows: Tensor) -> Tensor:
            inner = layer.dropout(layer.activation(layer.linear1(rows)))
            return _mapped(layer.dropout3, layer.linear2(inner))

        for norm, part in ((layer.norm1, itself), (layer.norm2, other), (layer.norm3, feed)):
            stream = self._around(norm, part, stream)
        return stream, kept[0]

    def _around(self, norm: nn.Module, part: Callable[[Tensor], Tensor], stream: Tensor) -> Tensor:
        if self.layer.norm_first:
            return stream + part(norm(stream))
        normed: Tensor = norm(stream + part(stream))
        return normed

    def _read_past(self, rows: Tensor, past: Cache) -> tuple[Tensor, Cache]:
        reader = self.layer.self_attn
        projected = F.linear(rows, reader.in_proj_weight, reader.in_proj_bias)
        split = projected.unflatten(-1, (3, reader.num_heads, -1)).movedim(2, 0)
        query, key, value = split.transpose(2, 3)  # [3, b, t, h, d] -> 3 of [b, h, t, d]
        longer = past.extended(key, value)
        causal = None if rows.shape[1] == 1 else past.length
        problem = pose(
            query, (longer.keys.rows, longer.values.rows), Masks(causal=causal),
            Score(reader.head_dim**-0.5), _dropout(reader),
        )  # fmt: skip
        return _merged(reader, read(problem).value), longer

    def _read_memory(self, rows: Tensor, memory: Memory, visible: Tensor | None) -> Tensor:
        reader = self.layer.multihead_attn
        ask, heads = heads_of(reader)
        content = memory.holding.content(self.number, stamp_of(reader))
        asked = ask(rows).unflatten(-1, (reader.num_heads, -1)).transpose(1, 2)  # -> [b, h, t, d]
        score = Score(heads.scale)
        posed = pose_memory(asked, memory, content, heads.key, score, visible, None)
        problem = posed._replace(dropout=_dropout(reader))
        found = answer(read(problem), problem, content, heads.value, reader.num_heads)
        return _merged(reader, found)


def _mapped(module: nn.Module, rows: Tensor) -> Tensor:
    output: Tensor = module(rows)
    return output


def _merged(reader: nn.MultiheadAttention, found: Tensor) -> Tensor:
    """Map the heads' values [b, h, t, d] -> [b, t, c]."""
    side_by_side = found.transpose(1, 2).flatten(2)
    return F.linear(side_by_side, reader.out_proj.weight, reader.out_proj.bias)


def _dropout(reader: nn.MultiheadAttention) -> float:
    return reader.dropout if reader.training else 0.0
