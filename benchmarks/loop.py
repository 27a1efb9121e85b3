"""Step-by-step decoding, 6 layers of 512, against `nn.TransformerDecoder` with the same weights.

Torch's decoder keeps nothing between steps, so at each step it reads the target so far, and
projects the memory, again. Both give the same rows at every step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

import crossattention as xa
from benchmarks.run import Run
from benchmarks.same_weights import decoder_block
from benchmarks.side_by_side import compare
from crossattention import nn as xnn

WIDTH, HEADS, HIDDEN, LAYERS, BATCH, ROWS = 512, 8, 2048, 6, 8, 500


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure 30 and 100 steps."""
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, HIDDEN, batch_first=True)
    theirs = nn.TransformerDecoder(layer, LAYERS).eval()
    with torch.no_grad():  # the layers begin as copies of one: let them differ
        for parameter in theirs.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    ours = [decoder_block(each, "post").eval() for each in theirs.layers]
    memory = torch.randn(BATCH, ROWS, WIDTH)
    for steps in (3,) if run.quick else (30, 100):
        target = torch.randn(BATCH, steps, WIDTH)
        lanes = {
            "ours": lambda target=target: _ours(ours, target, memory),
            "torch": lambda target=target: _torch(theirs, target, memory),
        }
        with torch.inference_mode():
            timing = compare(lanes, run.seconds(20.0), least=1 if steps == 100 else 2)
        yield {"case": f"{steps} steps", "steps": steps} | timing.row()


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give how many times as long torch's decoder takes."""
    return {f"{row['steps']}_steps": row["ratio"]["torch"] for row in rows}  # type: ignore[index]


def _ours(blocks: Sequence[xnn.DecoderBlock], target: Tensor, source: Tensor) -> Tensor:
    steps = target.shape[1]
    memory = xa.Memory.of(source)
    for block in blocks:
        memory = block.cross_attention.remember(memory, queries=steps)
    caches = [block.self_attention.start(len(target), steps) for block in blocks]
    written = []
    for step in range(steps):
        stream = target[:, step : step + 1]
        for at, block in enumerate(blocks):
            stream, caches[at] = block.step_self(stream, caches[at])
            stream = block.read_memory(stream, memory)
        written.append(stream)
    return torch.cat(written, 1)


def _torch(decoder: nn.TransformerDecoder, target: Tensor, memory: Tensor) -> Tensor:
    written = []
    for step in range(1, target.shape[1] + 1):
        mask = nn.Transformer.generate_square_subsequent_mask(step)
        rows = decoder(target[:, :step], memory, tgt_mask=mask, tgt_is_causal=True)
        written.append(rows[:, -1:])
    return torch.cat(written, 1)
