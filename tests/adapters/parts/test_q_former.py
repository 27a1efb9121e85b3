"""Adopted query formers of BLIP-2 and InstructBLIP give the same numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    Blip2QFormerConfig,
    Blip2QFormerModel,
    InstructBlipQFormerConfig,
    InstructBlipQFormerModel,
)

from adapters.parts.ask import lives_on, same_numbers
from crossattention.adapters.parts.q_former import QFormerAttention
from crossattention.errors import ContractError

B, T, S, H, C, IMAGE = 3, 5, 11, 2, 10, 14
PART = QFormerAttention()


def former(kind: str, implementation: str = "eager", dropout: float = 0.0) -> nn.Module:
    """Draw a query former in float64."""
    config_of, model_of = {
        "blip2": (Blip2QFormerConfig, Blip2QFormerModel),
        "instruct": (InstructBlipQFormerConfig, InstructBlipQFormerModel),
    }[kind]
    config = config_of(
        hidden_size=C, num_hidden_layers=3, num_attention_heads=H, intermediate_size=13,
        encoder_hidden_size=IMAGE, cross_attention_frequency=2, vocab_size=17,
        attention_probs_dropout_prob=dropout, hidden_dropout_prob=0.0,
    )  # fmt: skip
    config._attn_implementation = implementation
    made: nn.Module = model_of(config).double()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


def adopt(model: nn.Module, form: str = "auto") -> nn.Module:
    """Adopt a copy of a model."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if PART.knows(module):
            PART.check(module, form)
            PART.adopt(module, form)
    return copied


def read(model: nn.Module, image: torch.Tensor, **given: object) -> object:
    """Ask the former about an image, with its own queries."""
    torch.manual_seed(1)
    queries = torch.randn(B, T, C).double()
    if isinstance(model, InstructBlipQFormerModel):
        words = torch.arange(B * 4).view(B, 4)
        return model(input_ids=words, query_embeds=queries, encoder_hidden_states=image, **given)
    return model(query_embeds=queries, encoder_hidden_states=image, **given)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["blip2", "instruct"])
def test_equals_stock(kind: str, implementation: str) -> None:
    torch.manual_seed(0)
    model = former(kind, implementation).eval()
    image = torch.randn(B, S, IMAGE).double()
    mask = (torch.arange(S) < torch.tensor([S, 4, 1])[:, None]).long()
    for given in ({}, {"encoder_attention_mask": mask}):
        want = read(model, image, **given).last_hidden_state
        for form in ("auto", "projected", "raw"):
            got = read(adopt(model, form), image, **given).last_hidden_state
            torch.testing.assert_close(got, want)


def test_maps_are_shown_as_before() -> None:
    torch.manual_seed(0)
    model, image = former("blip2").eval(), torch.randn(B, S, IMAGE).double()
    want = read(model, image, output_attentions=True)
    got = read(adopt(model), image, output_attentions=True)
    assert len(want.cross_attentions) > 0
    for name in ("attentions", "cross_attentions"):
        for ours, stock in zip(getattr(got, name), getattr(want, name), strict=True):
            torch.testing.assert_close(ours, stock)


@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
def test_attention_alone(form: str) -> None:
    """Gradients, copies, pickles, and dropout's draws from the same seed."""
    torch.manual_seed(0)
    module = former("blip2", dropout=0.3).encoder.layer[0].crossattention.attention
    stream, image = torch.randn(B, T, C).double(), torch.randn(B, S, IMAGE).double()
    mask = torch.randn(B, 1, 1, S).double()

    def call(each: nn.Module) -> torch.Tensor:
        torch.manual_seed(2)
        return each(stream, None, image, mask)[0]

    same_numbers(PART, module, call, form)
    lives_on(PART, module.eval(), call)


def test_raw_takes_less() -> None:
    torch.manual_seed(0)
    wide = Blip2QFormerConfig(
        hidden_size=48, num_attention_heads=3, encoder_hidden_size=88, num_hidden_layers=1,
        intermediate_size=8, vocab_size=5,
    )  # fmt: skip
    wide._attn_implementation = "eager"
    model = Blip2QFormerModel(wide).eval().requires_grad_(False)
    module = model.encoder.layer[0].crossattention.attention
    given = torch.randn(1, 8, 48), None, torch.randn(1, 1013, 88)
    totals = []
    for adopting in (False, True):
        if adopting:
            PART.adopt(module, "auto")
        with FlopCounterMode(display=False) as counted:
            module(*given)
        totals.append(counted.get_total_flops())
    assert totals[1] < 0.7 * totals[0]


def test_a_map_that_is_no_plain_linear_is_called() -> None:
    """An adapter around the key map is read through; "raw" would go past it, and is refused."""

    class Doubled(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return 2 * self.inner(rows)

    torch.manual_seed(0)
    module = former("blip2").eval().encoder.layer[0].crossattention.attention
    module.key = Doubled(module.key)
    stream, image = torch.randn(B, T, C).double(), torch.randn(B, S, IMAGE).double()
    same_numbers(PART, module, lambda each: each(stream, None, image)[0])
    with pytest.raises(ContractError, match="Doubled"):
        PART.check(module, "raw")
