"""Where a decoder stands: the self-attention cache of each layer, and how many tokens it has read.

A frozen value beside the `Memory`, which never changes while it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from crossattention.errors import ContractError, complaint, describe
from crossattention.memory import Memory
from crossattention.nn.cache import Cache
from crossattention.seq2seq.config import Config

Heads = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class State:
    """Hold the past of a batch of target sequences.

    Attributes:
        caches: one for each decoder layer.
        length: tokens read so far.

    >>> State(caches=(), length=0).length
    0
    """

    caches: tuple[Cache, ...]
    length: int

    def select(self, index: Tensor) -> State:
        """Keep the sequences named by `index` [b'], in its order: how the past follows beams.

        >>> import torch
        >>> State(caches=(), length=3).select(torch.tensor([0])).length
        3
        """
        return replace(self, caches=tuple(cache.select(index) for cache in self.caches))


def check_memory(memory: Memory) -> None:
    """Check that a decoder is given a memory.

    >>> import torch
    >>> check_memory(Memory.of(torch.ones(1, 2, 3)))
    """
    if not isinstance(memory, Memory):
        do = "call encode(...) or remember(...)"
        raise ContractError(complaint("memory", "a Memory", describe(memory), do))


def check_state(state: State, config: Config) -> None:
    """Check that a state was made by this decoder.

    >>> check_state(State(caches=(None,), length=0), Config(vocabulary=5, decoder_layers=1))
    """
    if not isinstance(state, State) or len(state.caches) != config.decoder_layers:
        given = describe(state)
        if isinstance(state, State):
            given = f"one of {len(state.caches)} layers"
        want = f"a State of {config.decoder_layers} layers"
        raise ContractError(complaint("state", want, given, "take it from `start`"))


def check_shown(shown: Heads, config: Config) -> None:
    """Check the (layer, head) pairs whose weights are asked for.

    >>> check_shown(((0, 1),), Config(vocabulary=5))
    """
    limits = (config.decoder_layers, config.heads)
    for pair in shown if isinstance(shown, tuple | list) else (shown,):
        named = isinstance(pair, tuple | list) and len(pair) == 2
        if not named or not all(
            isinstance(each, int) and 0 <= each < limit
            for each, limit in zip(pair, limits, strict=True)
        ):
            want, do = f"pairs (layer, head) below {limits}", "count from 0"
            raise ContractError(complaint("shown", want, describe(pair), do))
