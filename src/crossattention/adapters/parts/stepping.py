"""Decode with `torch.nn.TransformerDecoder` step by step: the memory projected once, a past kept.

    x = x + self(norm(x)),   x = x + read(norm(x), memory),   x = x + feed(norm(x))      (pre-norm)

What is kept is passed as an argument: a `Memory` that beams share and a `State` that follows them.
Steps equal the decoder's own forward with a causal mask. Paper: Vaswani et al. 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn

from crossattention.adapters.parts.stepped_layer import SteppedLayer
from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.cache import Cache
from crossattention.nn.form import Life
from crossattention.nn.project import check_stream
from crossattention.nn.stamp import next_number
from crossattention.seq2seq.state import State, check_memory


class Stepping:
    """Step with a `torch.nn.TransformerDecoder`, or with one of its layers.

    It holds the decoder and nothing of what was decoded. Streams and rows have the decoder's
    layout: `[b, t, c]` where it is batch-first, else `[t, b, c]`.

    Args:
        decoder: whose weights are read, as they are at each call.
        form: "auto", "projected" or "raw", for the memories that are made.

    >>> import torch
    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> stepping = Stepping(nn.TransformerDecoder(layer, num_layers=3).eval(), "auto")
    >>> memory = stepping.remember(torch.randn(2, 5, 8), lengths=[5, 4]).shared_by(3)
    >>> output, state = stepping.step(torch.randn(6, 1, 8), memory, stepping.start(memory))
    >>> output.shape, state.length
    (torch.Size([6, 1, 8]), 1)
    """

    def __init__(self, decoder: nn.Module, form: str) -> None:
        self.decoder = decoder
        self.form = form
        self.numbers = [next_number() for _ in layers_of(decoder)]

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)  # a copy is another decoder: memories of one are not its own
        self.numbers = [next_number() for _ in self.numbers]

    def remember(
        self,
        rows: Tensor | Memory,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
        form: str | None = None,
    ) -> Memory:
        """Prepare a memory for every layer, once.

        Args:
            rows: `[m, s, c]` (or `[s, m, c]`), what the encoder returned; or a Memory.
            lengths: integers `[m]`, the real rows of each memory; the rest may hold anything.
            queries: how many query rows will read each memory over its life (steps x beams);
                None expects many.
            reads: how many reads they come in; None: one row a read.
            form: as in `CrossAttention.remember`; None: the one that was adopted with.
        """
        if isinstance(rows, Tensor) and rows.dim() == 3:
            rows = self._turned(rows)
        memory = Memory.of(rows, lengths)
        taken = self.form if form is None else form
        life = Life(*memory.size, queries, reads)
        for layer in self._layers():
            memory = layer.remember(memory, life, taken)
        return memory.without_rows() if memory.holding.projected else memory

    def start(self, memory: Memory, capacity: int = 32) -> State:
        """Stand before the first row, for every query sequence of the memory."""
        check_memory(memory)
        caches = [layer.start(memory.sequences, capacity) for layer in self._layers()]
        return State(tuple(caches), 0)

    def step(
        self, stream: Tensor, memory: Memory, state: State, *, visible: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Read the rows that follow, each seeing its past and the memory.

        Args:
            stream: `[b, t, c]` (or `[t, b, c]`), often t = 1.
            memory, state: what is read, and the past; beams move both by `select`.
            visible: bool, each axis of `[b, h, t, s]` full or 1; True = may be read.
        Returns:
            Rows of the stream's shape, and the new state.
        """
        check_memory(memory)
        if not isinstance(state, State) or len(state.caches) != len(self.numbers):
            want, do = f"a State of {len(self.numbers)} layers", "take it from `start`"
            raise ContractError(complaint("state", want, describe(state), do))
        layers, caches = self._layers(), list[Cache]()
        check_stream("stream", stream, layers[0].width, nn.Identity())
        rows = self._turned(stream)
        for layer, past in zip(layers, state.caches, strict=True):
            rows, longer = layer.step(rows, memory, past, visible)
            caches.append(longer)
        norm = getattr(self.decoder, "norm", None)
        rows = rows if norm is None else norm(rows)
        return self._turned(rows), State(tuple(caches), state.length + rows.shape[1])

    def _layers(self) -> list[SteppedLayer]:
        pairs = zip(layers_of(self.decoder), self.numbers, strict=True)
        return [SteppedLayer(layer, number) for layer, number in pairs]

    def _turned(self, stream: Tensor) -> Tensor:
        first = layers_of(self.decoder)[0].self_attn.batch_first
        return stream if first else stream.transpose(0, 1)


def layers_of(decoder: nn.Module) -> list[nn.TransformerDecoderLayer]:
    """List the layers of a decoder; a layer is a decoder of one.

    >>> len(layers_of(nn.TransformerDecoderLayer(8, 2)))
    1
    """
    if isinstance(decoder, nn.TransformerDecoder):
        return cast(list[nn.TransformerDecoderLayer], list(decoder.layers))
    return [cast(nn.TransformerDecoderLayer, decoder)]
