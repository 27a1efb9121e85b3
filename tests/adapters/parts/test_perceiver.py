"""An adopted Perceiver gives the same numbers, and reads a long input without projecting it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import PerceiverConfig, PerceiverModel

from adapters.parts.ask import adopted, lives_on, same_numbers
from crossattention.adapters.parts.perceiver import PerceiverAttention

B, S, N, C, INPUT = 3, 13, 5, 12, 7
PART = PerceiverAttention()


def perceiver(**given: object) -> nn.Module:
    """Draw a Perceiver in float64."""
    config = PerceiverConfig(
        num_latents=N, d_latents=C, d_model=INPUT, num_blocks=1, num_self_attends_per_block=1,
        num_self_attention_heads=2, num_cross_attention_heads=1, attention_probs_dropout_prob=0.0,
        qk_channels=given.get("qk"), v_channels=given.get("v"),
        cross_attention_shape_for_attention="kv",
    )  # fmt: skip
    made: nn.Module = PerceiverModel(config).double()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
def test_equals_stock(form: str) -> None:
    torch.manual_seed(0)
    model, rows = perceiver(qk=10, v=C).eval(), torch.randn(B, S, INPUT).double()
    changed = copy.deepcopy(model)
    found = [module for module in changed.modules() if PART.knows(module)]
    assert len(found) == 1
    for module in found:
        PART.check(module, form)
        PART.adopt(module, form)
    for lengths in ([S] * B, [S, 4, 1]):
        mask = (torch.arange(S) < torch.tensor(lengths)[:, None]).long()
        given = {"inputs": rows, "attention_mask": mask, "output_attentions": True}
        want, got = model(**given), changed(**given)
        torch.testing.assert_close(got.last_hidden_state, want.last_hidden_state)
        torch.testing.assert_close(got.cross_attentions, want.cross_attentions)


@pytest.mark.parametrize("form", ["auto", "projected", "raw"])
def test_attention_alone(form: str) -> None:
    torch.manual_seed(0)
    module = perceiver(qk=10, v=14).encoder.cross_attention.attention.self
    latents, rows = torch.randn(B, N, C).double(), torch.randn(B, S, INPUT).double()
    lowest = torch.zeros(B, 1, 1, S).double()
    lowest[1] = torch.finfo(torch.float64).min  # padding alone is averaged, as the class has it
    for mask in (None, torch.randn(B, 1, 1, S).double(), lowest):
        same_numbers(PART, module, lambda each, m=mask: each(latents, None, rows, m)[0], form)
    lives_on(PART, module, lambda each: each(latents, None, rows)[0])


def test_input_rows_are_not_projected() -> None:
    torch.manual_seed(0)
    module = perceiver().encoder.cross_attention.attention.self.requires_grad_(False)
    given = torch.randn(1, N, C).double(), None, torch.randn(1, 211, INPUT).double()
    totals = []
    for each in (module, adopted(PART, module)):
        with FlopCounterMode(display=False) as counted:
            each(*given)
        totals.append(counted.get_total_flops())
    assert totals[1] < 0.6 * totals[0]
