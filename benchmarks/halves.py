"""Our search with weights in half precision, beside the float32 search it must agree with.

    halve(model) ~ the model whose weights were rounded, run in float32

The rounded model writes the same tokens, but for ties; that is looked at before anything is timed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.run import Run
from benchmarks.same_tokens import compare_tokens
from benchmarks.translating import Batch, Ours
from crossattention.kernels.native.library import absent
from crossattention.seq2seq import EncoderDecoder, halve

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def halves(run: Run, model: EncoderDecoder) -> dict[str, Ours]:
    """Give our search with a copy of the model for each half precision; none, noted, without it."""
    if absent():
        run.missing.append(f"half precision: {absent()}")
        return {}
    return {
        f"ours, {name} weights": Ours(halve(copy.deepcopy(model), dtype))
        for name, dtype in DTYPES.items()
    }


def compare_rounded(
    model: EncoderDecoder, half: Ours, batches: Sequence[Batch], beams: int
) -> dict[str, object]:
    """Compare tokens with those of the model whose weights are rounded.

    Raises:
        Unequal: they differ without a tie.
    """
    plain = rounded(model, half.model.embedding.tokens.weight.dtype)
    return compare_tokens(Ours(plain), half, batches, beams)


def rounded(model: EncoderDecoder, dtype: torch.dtype) -> EncoderDecoder:
    """Give a copy of a model whose weights are rounded to a dtype, and held as they were."""
    plain = copy.deepcopy(model)
    with torch.no_grad():
        for each in plain.modules():
            if isinstance(each, nn.Linear | nn.Embedding):
                each.weight.copy_(each.weight.to(dtype))
    return plain
