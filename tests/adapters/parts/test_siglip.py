"""Adopted pooling heads of SigLIP and SigLIP 2 pool to the same numbers, in less work."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import Siglip2VisionConfig, SiglipVisionConfig, SiglipVisionModel
from transformers.models.siglip.modeling_siglip import SiglipMultiheadAttentionPoolingHead
from transformers.models.siglip2.modeling_siglip2 import Siglip2MultiheadAttentionPoolingHead

from adapters.parts.ask import adopted, lives_on, same_numbers
from crossattention.adapters.parts.siglip import SiglipPooling
from crossattention.errors import ContractError

B, S, C, H = 3, 11, 10, 2
SIZES = {"hidden_size": C, "num_attention_heads": H, "intermediate_size": 13}


def head(version: int) -> nn.Module:
    """Draw a head in float64."""
    made: nn.Module
    if version == 1:
        made = SiglipMultiheadAttentionPoolingHead(SiglipVisionConfig(**SIZES))
    else:
        config = Siglip2VisionConfig(**SIZES)
        config._attn_implementation = "eager"
        made = Siglip2MultiheadAttentionPoolingHead(config)
    for each in made.parameters():
        nn.init.normal_(each, std=0.5)
    return made.double()


@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
@pytest.mark.parametrize("version", [1, 2])
def test_equals_stock(version: int, form: str) -> None:
    torch.manual_seed(0)
    rows = torch.randn(B, S, C).double()
    same_numbers(SiglipPooling(), head(version), lambda each: each(rows), form)


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("kind", [torch.long, torch.bool])
def test_masks_equal_stock(form: str, kind: torch.dtype) -> None:
    """Padding hides; an image of padding alone is averaged, as the head has it."""
    torch.manual_seed(0)
    rows, mask = torch.randn(B, S, C).double(), torch.arange(S) < torch.tensor([S, 4, 0])[:, None]
    same_numbers(SiglipPooling(), head(2), lambda each: each(rows, mask.to(kind)), form)


@pytest.mark.parametrize("version", [1, 2])
def test_lives_on(version: int) -> None:
    torch.manual_seed(0)
    rows = torch.randn(B, S, C).double()
    lives_on(SiglipPooling(), head(version), lambda each: each(rows))


def test_patches_are_not_projected() -> None:
    torch.manual_seed(0)
    stock, rows = head(1), torch.randn(B, 19997, C).double()
    totals = []
    for each in (stock, adopted(SiglipPooling(), stock)):
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            each(rows)
        totals.append(counted.get_total_flops())
    assert 2 * totals[1] < totals[0]


def test_a_whole_encoder() -> None:
    torch.manual_seed(0)
    config = SiglipVisionConfig(**SIZES, num_hidden_layers=1, image_size=6, patch_size=2)
    model = SiglipVisionModel(config).eval()
    pixels = torch.randn(B, 3, 6, 6)
    want = model(pixels).pooler_output
    for module in model.modules():
        if SiglipPooling().knows(module):
            SiglipPooling().adopt(module, "auto")
    torch.testing.assert_close(model(pixels).pooler_output, want)


def test_another_attention_inside_is_refused() -> None:
    strange = head(1)
    strange.attention = nn.Identity()
    with pytest.raises(ContractError, match="probe"):
        SiglipPooling().check(strange, "auto")
