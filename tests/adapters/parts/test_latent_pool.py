"""An adopted `AttentionPoolLatent` pools to the same numbers, in less work."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from adapters.parts.ask import adopted, lives_on, same_numbers
from adapters.parts.latent import AttentionPoolLatent
from crossattention.adapters.parts.latent_pool import LatentPool
from crossattention.errors import ContractError

B, S, C, H = 3, 11, 10, 2

KINDS = {
    "one": {},
    "several": {"latents": 5, "pool": "avg"},
    "positions": {"latents": 2, "positions": S, "pool": ""},
    "norms": {"norms": True},
}


def drawn(**given: object) -> AttentionPoolLatent:
    """Draw a pool in float64."""
    pool = AttentionPoolLatent(C, H, **given).double()  # type: ignore[arg-type]
    for each in pool.parameters():
        nn.init.normal_(each, std=0.5)
    return pool


def masks() -> list[Tensor | None]:
    """No mask, a boolean (True = may be read), and an additive one."""
    seen = torch.arange(S) < torch.tensor([S, 4, 1])[:, None, None, None]
    return [None, seen, torch.randn(B, 1, 1, S).double()]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_stock(kind: str, fused: bool) -> None:
    torch.manual_seed(0)
    pool, rows = drawn(**KINDS[kind]), torch.randn(B, S, C).double()
    pool.fused_attn = fused
    for mask in masks():
        for form in ("auto", "projected", *(() if kind == "norms" else ("raw",))):
            same_numbers(LatentPool(), pool, lambda each, mask=mask: each(rows, mask), form)


def test_lives_on() -> None:
    torch.manual_seed(0)
    rows = torch.randn(B, S, C).double()
    lives_on(LatentPool(), drawn(), lambda each: each(rows))


def test_patches_are_not_projected() -> None:
    torch.manual_seed(0)
    pool, rows = AttentionPoolLatent(5 * C, H).double(), torch.randn(B, 1999, 5 * C).double()
    pool.requires_grad_(False)  # the counter does not take parameters where gradients are off
    totals = []
    for each in (pool, adopted(LatentPool(), pool)):
        with torch.no_grad(), FlopCounterMode(display=False) as counted:
            each(rows)
        totals.append(counted.get_total_flops())
    assert 2 * totals[1] < totals[0]


def test_a_wrapped_map_is_left_to_stock() -> None:
    """A hook on `kv`, as an adapter might have, is met as before."""
    torch.manual_seed(0)
    pool, rows = drawn(), torch.randn(B, S, C).double()
    pool.kv.register_forward_hook(lambda module, given, output: 2 * output)
    assert torch.equal(adopted(LatentPool(), pool)(rows), pool(rows))


def test_refusals() -> None:
    broken = drawn()
    del broken.scale
    with pytest.raises(ContractError, match="scale"):
        LatentPool().check(broken, "auto")
    with pytest.raises(ContractError, match="key norm"):
        LatentPool().check(drawn(norms=True), "raw")

    other = type("AttentionPoolLatent", (nn.Module,), {"forward": lambda self, rows: rows})()
    with pytest.raises(ContractError, match="forward takes x, attn_mask"):
        LatentPool().check(other, "auto")
