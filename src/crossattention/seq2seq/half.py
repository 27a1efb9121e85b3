"""Hold a model's weights in half precision: half the bytes for each step to fetch.

    W <- round(W), of every linear map and of the table of tokens

What flows stays float32, as do norms, biases and positions: the model becomes the one with rounded
weights, and nothing else is rounded. It pays where one row or a few are mapped in a step, which
takes as long as the weights take to arrive.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.native.library import absent
from crossattention.kernels.native.linear import HALVES, maps_few
from crossattention.nn.half import HalfEmbedding, HalfLinear, check_fits
from crossattention.seq2seq.model import EncoderDecoder
from crossattention.seq2seq.prepared import knows


def halve(model: EncoderDecoder, dtype: torch.dtype = torch.bfloat16) -> EncoderDecoder:
    """Round the weights of a model in its place, for inference.

    Args:
        model: in float32, on the CPU and in evaluation mode, of this library's own parts.
        dtype: bfloat16; or float16, which loses nothing where the weights were stored in it.
    Returns:
        The model.
    Raises:
        ContractError: where search would not be the faster for it, or weights are too large or
            were rounded to the other dtype before.

    >>> from crossattention.seq2seq.config import Config
    >>> model = EncoderDecoder(Config(vocabulary=11, width=16, heads=2, feed_forward=32)).eval()
    >>> absent() != "" or halve(model).embedding.tokens.weight.dtype == torch.bfloat16
    True
    """
    if dtype not in HALVES:
        want, do = "bfloat16 or float16", "leave the weights as they are, or choose one"
        raise ContractError(complaint("dtype", want, describe(dtype), do))
    refusal = _refusal(model, dtype)
    if refusal:
        want, do = "one that can hold weights in half precision", "leave them in float32"
        raise ContractError(complaint("model", want, refusal, do))
    linears = [name for name, each in model.named_modules() if isinstance(each, nn.Linear)]
    for name in (*linears, "embedding.tokens"):  # a model that is refused is left as it was
        check_fits(cast(Tensor, model.get_submodule(name).weight), dtype)
    for name in linears:  # one by one: what the first leaves has room for the next
        linear = cast(nn.Linear, model.get_submodule(name))
        model.set_submodule(name, HalfLinear(linear, dtype))
    model.set_submodule("embedding.tokens", HalfEmbedding(model.embedding.tokens, dtype))
    return model.eval()


def _refusal(model: EncoderDecoder, dtype: torch.dtype) -> str:
    """Say what stands against it; empty where nothing does."""
    if not isinstance(model, EncoderDecoder):
        return describe(model)
    if absent():
        return f"one without the native kernel: {absent()}"
    if not knows(model):
        return "one that search runs as it is (training, hooks, other parts, dtypes or devices)"
    held = model.embedding.tokens.weight.dtype
    if held not in (torch.float32, dtype):  # what was rounded away is not to be had again
        return f"one whose weights were rounded to {held}"
    linears = [each for each in model.modules() if isinstance(each, nn.Linear)]
    with torch.no_grad():
        if not all(maps_few(each.weight[:1], each.weight, each.bias) for each in linears):
            return "widths that are no multiple of 16, or a processor without AVX2"
    return ""
