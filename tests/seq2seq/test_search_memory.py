"""A search projects each memory once, shares it between beams, and never copies it for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from crossattention.memory import Memory
from crossattention.seq2seq import (
    BeamOptions,
    Config,
    EncoderDecoder,
    SampleOptions,
    State,
    beam,
    greedy,
    sample,
)
from seq2seq.models import sources, tiny

LENGTHS = [5, 1, 7, 3, 2, 6, 4]
BEAMS = (1, 4, 16)


class Watched(EncoderDecoder):
    """A model that notes the memory of each step; one token at most is fed to a lane."""

    def step(
        self, tokens: Tensor, memory: Memory, state: State, shown: Sequence[tuple[int, int]] = ()
    ) -> tuple[Tensor, State, Tensor]:
        self.seen.append(memory)
        return super().step(tokens, memory, state, tuple(shown))


def watched(calls: Counter[str]) -> Watched:
    """A watched model whose projections of the memory count their calls."""
    plain = tiny(3)
    model = Watched(plain.config).double().eval()
    model.load_state_dict(plain.state_dict())
    model.seen = []

    def count(name: str) -> Any:
        return lambda *_: calls.update([name])

    for name, module in model.named_modules():
        if name.startswith("decoder") and name.endswith(("key_projection", "value_projection")):
            module.register_forward_hook(count(name))
    return model


@pytest.mark.parametrize("name", ["greedy", "sample", *BEAMS])
def test_each_layer_projects_its_memory_once_a_search(name: str | int) -> None:
    calls: Counter[str] = Counter()
    model, (source, lengths) = watched(calls), sources(LENGTHS)
    if name == "greedy":
        greedy(model, source, lengths, align=True)
    elif name == "sample":
        sample(model, source, lengths, SampleOptions(samples=3), align=True)
    else:
        beam(model, source, lengths, BeamOptions(beams=int(name)), align=True)
    assert len(model.seen) > 5
    assert len(calls) == 2 * len(model.decoder) and set(calls.values()) == {1}


def test_memory_bytes_do_not_grow_with_beams() -> None:
    sizes = set()
    for beams in BEAMS:
        model, (source, lengths) = watched(Counter()), sources(LENGTHS)
        beam(model, source, lengths, BeamOptions(beams=beams))
        first, second = model.seen[:2]
        assert first.sequences == len(LENGTHS)
        assert second.sequences == beams * len(LENGTHS)
        sizes |= {first.nbytes, second.nbytes}
    assert len(sizes) == 1


def test_beams_fold_as_a_view_and_ended_sentences_take_their_memory_along() -> None:
    model, (source, lengths) = watched(Counter()), sources(LENGTHS)
    beam(model, source, lengths, BeamOptions(beams=4))
    assert model.seen[0].owner is None  # one lane stands for all before the first token
    for memory in model.seen[1:]:
        assert memory.owner is not None
        assert memory.owner.slots is None and memory.owner.per_memory == 4
    left = [memory.size[0] for memory in model.seen]
    assert left == sorted(left, reverse=True) and left[0] == len(LENGTHS) and len(set(left)) > 2
    assert model.seen[-1].nbytes < model.seen[0].nbytes
    kept = {id(memory) for memory in model.seen[1:]}
    assert len(kept) == len(set(left))  # the memory is touched when sentences leave, not else


class Allocations(TorchDispatchMode):
    """Sum the bytes of every storage that an operation returns and was not given."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for made in tree_leaves(result):
            if isinstance(made, Tensor) and storage(made) not in given:
                self.bytes += made.untyped_storage().nbytes()
        return result


def storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def allocated(kernel: str, width: int, beams: int, s: int, heads: int = 3, m: int = 2) -> int:
    """Bytes that one step of one decoder layer allocates over m memories of s rows."""
    torch.manual_seed(0)
    config = Config(
        vocabulary=7, width=width, heads=heads, feed_forward=8, encoder_layers=1,
        decoder_layers=1, max_length=512,
    )  # fmt: skip
    model = EncoderDecoder(config).eval()
    model.decoder[0].cross_attention.kernel = kernel
    with torch.inference_mode():
        rows = torch.randn(m, s, width)
        memory = model.remember(rows, [s, s - 4], form="projected").shared_by(beams)
        state, tokens = model.start(memory, capacity=4), torch.full((m * beams, 1), 3)
        with Allocations() as counted:
            model.step(tokens, memory, state)
    return counted.bytes


@pytest.mark.parametrize("kernel", ["matmul", "fused"])
@pytest.mark.parametrize("beams", BEAMS)
def test_what_a_step_allocates_for_the_memory_is_scores_alone(kernel: str, beams: int) -> None:
    m, heads, more = 2, 3, 279
    grown = {
        width: allocated(kernel, width, beams, 31 + more) - allocated(kernel, width, beams, 31)
        for width in (12, 48)
    }
    scores = 4 * m * beams * heads * more  # bytes of one pass over the scores
    assert grown[12] == grown[48]  # no keys and no values
    assert grown[12] <= 4 * scores + 16 * m * more  # scores, hidden, softmax; masks of a row


def test_the_count_sees_a_copy_of_the_keys() -> None:
    keys = torch.randn(2, 3, 31, 4)
    with Allocations() as counted:
        keys[torch.tensor([0, 0, 1, 1])].view(-1)
        keys.transpose(1, 2)
    assert counted.bytes == 2 * keys.numel() * 4
