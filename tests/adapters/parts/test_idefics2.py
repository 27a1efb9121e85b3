"""An adopted resampler of Idefics2 gives the same numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers.models.idefics2.configuration_idefics2 import Idefics2PerceiverConfig
from transformers.models.idefics2.modeling_idefics2 import Idefics2PerceiverResampler

from adapters.parts.ask import lives_on, same_numbers
from crossattention.adapters.parts.idefics2 import Idefics2Resampler

B, S, C, N = 3, 11, 12, 5
PART = Idefics2Resampler()


def resampler(implementation: str = "eager") -> nn.Module:
    """Draw a resampler of 6 query heads and 2 key heads, in float64."""
    config = Idefics2PerceiverConfig(
        hidden_size=C, resampler_n_latents=N, resampler_depth=2, resampler_n_heads=6,
        resampler_head_dim=4, num_key_value_heads=2,
    )  # fmt: skip
    config._attn_implementation = implementation
    made: nn.Module = Idefics2PerceiverResampler(config)
    if implementation == "sdpa":  # the other rounds its weights to float32
        made = made.double()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
def test_equals_stock(form: str, implementation: str) -> None:
    torch.manual_seed(0)
    model = resampler(implementation).eval()
    rows = torch.randn(B, S, C).to(model.latents.dtype)
    adopted = copy.deepcopy(model)
    for module in adopted.modules():
        if PART.knows(module):
            PART.check(module, form)
            PART.adopt(module, form)
    for lengths in ([S] * B, [S, 4, 1]):
        mask = (torch.arange(S) < torch.tensor(lengths)[:, None]).long()
        torch.testing.assert_close(adopted(rows, mask), model(rows, mask))


@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
def test_attention_alone(form: str) -> None:
    torch.manual_seed(0)
    module = resampler("sdpa").layers[0].self_attn
    latents, rows = torch.randn(B, N, C).double(), torch.randn(B, S, C).double()
    mask = torch.randn(B, 1, N, S + N).double()
    same_numbers(PART, module, lambda each: each(latents, rows, mask)[0], form)
    same_numbers(PART, module, lambda each: each(latents, rows)[0], form)
    lives_on(PART, module, lambda each: each(latents, rows, mask)[0])


def test_maps_are_shown_as_before() -> None:
    torch.manual_seed(0)
    module = resampler("eager").layers[0].self_attn
    latents, rows = torch.randn(B, N, C), torch.randn(B, S, C)
    want = module(latents, rows)
    PART.adopt(module, "auto")
    for ours, stock in zip(module(latents, rows), want, strict=True):
        torch.testing.assert_close(ours, stock)
