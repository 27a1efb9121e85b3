from __future__ import annotations

import pytest
import torch

from crossattention.errors import ContractError
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.explain import Reads, explain_forms
from crossattention.nn.form import Life, form_costs


@pytest.mark.parametrize(
    ("heads", "memory_heads", "memory"), [(4, None, 2111), (4, 2, 2917), (1, 1, 4099)]
)
def test_it_flips_where_the_layer_flips(heads: int, memory_heads: int | None, memory: int) -> None:
    layer = CrossAttention(96, heads, memory_heads=memory_heads)
    reads = Reads(1, memory, 96, heads, memory_heads)
    flip = explain_forms(reads).flips_at
    for life in (flip, flip + 1):
        rows = torch.zeros(1, memory, 96)
        raw = layer.remember(rows, queries=life).contents[layer.number].key is None
        found = explain_forms(Reads(1, memory, 96, heads, memory_heads, life=life))
        assert raw is (life == flip) and found.chosen == ("raw" if raw else "projected")


def test_costs_and_bytes_are_those_of_real_memories() -> None:
    reads = Reads(3, 29, 24, 4, 2, batch=5, beams=7, layers=2, life=100)
    projected, raw = explain_forms(reads, torch.float64).forms
    life = Life(5, 29, queries=100, reads=5)  # 21 rows a read
    for shown, cost in zip((projected, raw), form_costs(life, reads.sizes).values(), strict=True):
        assert (shown.multiply_adds, shown.work) == (2 * cost.multiply_adds, 2 * cost.total)
        assert (shown.numbers, shown.calls) == (2 * cost.numbers, 2 * cost.calls)
    layer = CrossAttention(24, 4, memory_heads=2).double()
    rows = torch.zeros(5, 29, 24, dtype=torch.float64)
    kept = layer.remember(rows, form="projected").contents[layer.number]
    assert kept.key is not None and kept.value is not None
    assert projected.bytes == 2 * (kept.key.nbytes + kept.value.nbytes)
    assert raw.bytes == rows.nbytes


def test_a_read_counts_every_beam() -> None:
    one = explain_forms(Reads(1, 50, 24, 4)).forms[0].kernels
    five = explain_forms(Reads(1, 50, 24, 4, beams=5)).forms[0].kernels
    for less, more in zip(one.kernels, five.kernels, strict=True):
        assert more.multiply_adds == 5 * less.multiply_adds


@pytest.mark.parametrize(
    "given", [{"queries": 0}, {"beams": 0}, {"heads": 5}, {"memory_heads": 3}, {"life": 0}]
)
def test_sizes_that_make_no_layer_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ContractError):
        Reads(**({"queries": 1, "memory": 7, "width": 24, "heads": 4} | given))


def test_a_dtype_without_fractions_is_refused() -> None:
    with pytest.raises(ContractError, match="dtype"):
        explain_forms(Reads(1, 7, 24, 4), torch.int64)
