"""One block, prepared: its own numbers, and the fewest calls that compute it.

    x <- x + part(norm(x))   or   norm(x + part(x)),   part = read itself, read the memory, think

Rows are [b, c]: a decoder's step is one row of each sequence, an encoder's are all of all.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from crossattention.attention.attend import read
from crossattention.kernels.contract import Problem, Score
from crossattention.kernels.matmul import weights
from crossattention.mask import Mask
from crossattention.memory import Memory
from crossattention.nn.block import DecoderBlock, EncoderBlock, Residual
from crossattention.nn.half import HalfLinear
from crossattention.nn.packed import Packed
from crossattention.nn.pose import only_heads, pose
from crossattention.seq2seq.past import Past


class Norm(NamedTuple):
    """A layer norm, and whether it stands before a part or after the sum.

    >>> Norm.of(nn.LayerNorm(2))(torch.tensor([[1.0, 3.0]])).round().tolist()
    [[-1.0, 1.0]]
    """

    shape: tuple[int, ...]
    weight: Tensor | None
    bias: Tensor | None
    eps: float
    before: bool = True

    @classmethod
    def of(cls, norm: nn.Module, before: bool = True) -> Norm:
        """Take a norm's numbers."""
        given = cast(nn.LayerNorm, norm)
        return cls(given.normalized_shape, given.weight, given.bias, given.eps, before)

    @classmethod
    def around(cls, residual: Residual) -> Norm:
        """Take those of a residual part."""
        return cls.of(residual.norm, residual.before)

    def __call__(self, rows: Tensor) -> Tensor:
        """Norm rows [b, c]."""
        return torch.layer_norm(rows, self.shape, self.weight, self.bias, self.eps)

    def enter(self, stream: Tensor) -> Tensor:
        """Give what the part reads."""
        return self(stream) if self.before else stream

    def leave(self, summed: Tensor) -> Tensor:
        """Give the stream after the part has been added."""
        return summed if self.before else self(summed)


class Asked(NamedTuple):
    """What a layer asks of a memory: `problem`, but for the query, which each step puts in.

    `reads` is bool `[b, 1]`, False for a sequence whose memory is empty; None: all read. `shown`
    is the problem of the `heads` whose weights are wanted, None if none are.
    """

    problem: Problem
    reads: Tensor | None
    shown: Problem | None
    heads: list[int]


class EncoderLayer:
    """Hold an encoder block's numbers, which a decoder block has as well.

    Args:
        block: in evaluation mode, of known modules only.
    """

    def __init__(self, block: EncoderBlock | DecoderBlock) -> None:
        own, feed = block.self_attention, block.feed_forward
        self.heads, self.own_score = own.heads, Score(own.scale)
        self.around_self = Norm.around(block.around_self)
        self.around_feed = Norm.around(block.around_feed)
        self.own, self.own_output = _packed(own.projection), _packed(own.output_projection)
        self.expand, self.contract = _packed(feed.expand), _packed(feed.contract)

    def read_all(self, stream: Tensor, mask: Mask, sizes: tuple[int, int]) -> Tensor:
        """Let all rows [m·s, c] of sequences of `sizes` (m, s) read their own sequence."""
        norm = self.around_self
        rows = self.own(norm.enter(stream)).unflatten(0, sizes)  # -> [m, s, 3·c]
        split = rows.unflatten(2, (3, self.heads, -1))  # -> [m, s, 3, h, d]
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind()  # -> 3 of [m, h, s, d]
        found = read(Problem(query, key, value, None, mask, self.own_score)).value
        merged = found.transpose(1, 2).reshape(stream.shape)  # [m, h, s, d] -> [m·s, c]
        return norm.leave(self.own_output.plus(merged, stream))

    def think(self, stream: Tensor) -> Tensor:
        """Map each row by itself."""
        norm = self.around_feed
        hidden = self.expand.relu(norm.enter(stream))
        return norm.leave(self.contract.plus(hidden, stream))


class Layer(EncoderLayer):
    """Hold a decoder block's numbers: what an encoder block has, and its reading of a memory."""

    def __init__(self, block: DecoderBlock) -> None:
        super().__init__(block)
        cross = block.cross_attention
        self.like = next(cross.parameters()).detach()
        self.cross, self.cross_score = cross, Score(cross.scale)
        self.around_cross = Norm.around(block.around_cross)
        self.asking, self.answering = (
            _packed(each) for each in (cross.query_projection, cross.output_projection)
        )

    def ask(self, memory: Memory, heads: list[int]) -> Asked:
        """Pose the layer's reading of a memory that it has written into."""
        sizes = self.cross.sizes
        content = memory.contents[self.cross.number]
        like = self.like.new_empty(memory.sequences, sizes.heads, 1, sizes.key_width)
        projection, score = self.cross.key_projection, self.cross_score
        problem = pose(like, memory, content, projection, score, None, None)
        reads = problem.mask.reads
        shown = only_heads(problem, heads) if heads else None
        return Asked(problem, None if reads is None else reads[:, 0, 0], shown, heads)

    def read_self(self, stream: Tensor, past: Past, at: int) -> Tensor:
        """Let the rows [b, c] read what came before them and themselves; `at` counts layers."""
        b, norm = stream.shape[0], self.around_self
        rows = self.own(norm.enter(stream)).view(b, 3, self.heads, -1)  # [b, 3·c] -> [b, 3, h, d]
        key, value = past.write(at, rows[:, 1:])
        query = rows[:, 0, :, None]  # -> [b, h, 1, d]
        found = read(Problem(query, key, value, None, _ALL, self.own_score)).value
        return norm.leave(self.own_output.plus(found.reshape(b, -1), stream))

    def read_memory(self, stream: Tensor, asked: Asked) -> tuple[Tensor, list[Tensor]]:
        """Let the rows read the memory; also list the weights [b, k, 1, s] that are shown."""
        b, norm, maps = stream.shape[0], self.around_cross, []
        rows = self.asking(norm.enter(stream))
        query = rows.view(b, self.cross.sizes.heads, 1, -1)  # [b, h·d] -> [b, h, 1, d]
        if asked.shown is not None:
            maps.append(weights(asked.shown._replace(query=query[:, asked.heads])))
        found = read(asked.problem._replace(query=query)).value
        summed = self.answering.plus(found.reshape(b, -1), stream)
        if asked.reads is not None:  # a row that read nothing adds nothing, not even a bias
            summed = torch.where(asked.reads, summed, stream)
        return norm.leave(summed), maps


_ALL = Mask()


def _packed(linear: nn.Module) -> Packed:
    given = cast(nn.Linear | HalfLinear, linear)
    return Packed.of(given.weight, given.bias)
