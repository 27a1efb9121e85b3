"""What one call costs beside its arithmetic: `attend` and a layer on tiny tensors.

Everything is so small that only the calls themselves take time; differences are in microseconds,
pair by pair, against the torch calls that compute the same without any check.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import crossattention as xa
from benchmarks.run import Run
from benchmarks.side_by_side import Call, compare


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure each kind of call."""
    cases = {"attend": _attend(), "attend with lengths": _lengths(), "layer": _layer()}
    for case, lanes in cases.items():
        with torch.inference_mode():
            timing = compare(lanes, run.seconds(4.0), least=20)
        extra = 1e6 * timing.difference("ours", "torch")
        yield {"case": case, "extra_microseconds": extra} | timing.row()


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give the microseconds that our calls add."""
    return {f"{row['case']}_extra_microseconds": row["extra_microseconds"] for row in rows}


def _attend() -> dict[str, Call]:
    query, key, value = (torch.randn(1, 1, n, 8) for n in (1, 3, 3))
    return {
        "ours": lambda: xa.attend(query, key, value),
        "torch": lambda: F.scaled_dot_product_attention(query, key, value),
    }


def _lengths() -> dict[str, Call]:
    query, key, value = (torch.randn(2, 1, n, 8) for n in (1, 3, 3))
    lengths = torch.tensor([3, 2])
    hidden = torch.arange(3) < lengths[:, None, None, None]  # [m] -> [m, 1, 1, s]
    return {
        "ours": lambda: xa.attend(query, key, value, lengths=lengths),
        "torch": lambda: F.scaled_dot_product_attention(query, key, value, hidden),
    }


def _layer() -> dict[str, Call]:
    layer = xa.CrossAttention(8, 1).eval()
    stream, source = torch.randn(1, 1, 8), torch.randn(1, 3, 8)
    with torch.inference_mode():
        memory = layer.remember(source)
        key, value = (
            project(source)[:, None]  # [b, s, c] -> [b, 1, s, c]
            for project in (layer.key_projection, layer.value_projection)
        )

    def bare() -> Tensor:
        query = layer.query_projection(stream)[:, None]
        read: Tensor = F.scaled_dot_product_attention(query, key, value)[:, 0]
        output: Tensor = layer.output_projection(read)
        return output

    return {"ours": lambda: layer(stream, memory), "torch": bare}
