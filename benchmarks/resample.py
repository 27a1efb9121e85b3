"""Resampling: 32 and 64 queries read 257 × 1408 and 4,096 × 512 rows, rows new at every call.

One `CrossAttention` against the Q-Former's cross-attention of Hugging Face and against the
attention of x-transformers, each with the same weights as ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

import crossattention as xa
from benchmarks.run import Run
from benchmarks.side_by_side import Call, compare

SIZES = ((257, 1408, 768, 12), (4096, 512, 512, 8))  # rows, their width, query width, heads
PROJECTIONS = ("query", "key", "value", "output")


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every size, number of queries and batch."""
    for count, memory_width, width, heads in SIZES:
        for queries in (32, 64):
            for batch in (1,) if run.quick else (1, 8):
                sources = torch.randn(batch, count, memory_width)
                stream = torch.randn(batch, queries, width)
                case = f"{queries} over {count} × {memory_width}"
                for peer, make in (("Hugging Face", _q_former), ("x-transformers", _plain)):
                    lanes = make(run, heads, stream, sources)
                    if lanes:
                        with torch.inference_mode():
                            timing = compare(lanes, run.seconds(1.0))
                        yield {"case": case, "batch": batch, "peer": peer} | timing.row()


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give every ratio."""
    return {
        f"{row['case']}_batch_{row['batch']}_against_{row['peer']}": row["ratio"]["peer"]  # type: ignore[index]
        for row in rows
    }


def _q_former(run: Run, heads: int, stream: Tensor, sources: Tensor) -> dict[str, Call]:
    """Give the lanes x -> norm(x + read(x)), as a Q-Former's layer has it."""
    peer = run.peer("transformers.models.blip_2.modeling_blip_2")
    if peer is None:
        return {}
    width, memory_width = stream.shape[-1], sources.shape[-1]
    config = peer.Blip2QFormerConfig(
        hidden_size=width, num_attention_heads=heads, encoder_hidden_size=memory_width
    )
    config._attn_implementation = "sdpa"  # the fastest that it has here
    theirs = peer.Blip2QFormerAttention(config, is_cross_attention=True).eval()
    ours = xa.CrossAttention(width, heads, memory_width=memory_width).eval()
    norm = theirs.output.LayerNorm
    parts = theirs.attention
    _copy(ours, (parts.query, parts.key, parts.value, theirs.output.dense))
    return {
        "ours": lambda: norm(stream + ours(stream, sources)),
        "peer": lambda: theirs(stream, encoder_hidden_states=sources),
    }


def _plain(run: Run, heads: int, stream: Tensor, sources: Tensor) -> dict[str, Call]:
    peer = run.peer("x_transformers.x_transformers")
    if peer is None:
        return {}
    width, memory_width = stream.shape[-1], sources.shape[-1]
    theirs = peer.Attention(
        width, dim_context=memory_width, heads=heads, dim_head=width // heads, flash=True
    ).eval()
    ours = xa.CrossAttention(width, heads, memory_width=memory_width, bias=False).eval()
    _copy(ours, (theirs.to_q, theirs.to_k, theirs.to_v, theirs.to_out))
    return {
        "ours": lambda: ours(stream, sources),
        "peer": lambda: theirs(stream, context=sources),
    }


def _copy(ours: xa.CrossAttention, projections: Sequence[nn.Module]) -> None:
    for name, module in zip(PROJECTIONS, projections, strict=True):
        ours.get_submodule(f"{name}_projection").load_state_dict(module.state_dict())
