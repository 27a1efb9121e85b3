"""Rotary positions: the formula, both pairings, and the law that only differences count."""

from __future__ import annotations

import cmath
from typing import Any

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.nn import Rotary

PAIRS = ("halves", "neighbours")
BATCHES = [(), (1,), (3,)]


def places(width: int, pairs: str) -> list[tuple[int, int]]:
    """Say which two numbers of a head turn together."""
    half = width // 2
    return [(i, i + half) if pairs == "halves" else (2 * i, 2 * i + 1) for i in range(half)]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize(("width", "d"), [(6, 6), (4, 7), (2, 2)])
def test_each_pair_turns_as_a_complex_number(
    width: int, d: int, batch: tuple[int, ...], pairs: str
) -> None:
    torch.manual_seed(0)
    heads = torch.randn(3, 2, 5, d, dtype=torch.float64)
    positions = torch.randn(*batch, 5, dtype=torch.float64) * 9
    found = Rotary(width, base=50.0, pairs=pairs)(heads, positions)
    wanted = heads.clone()
    for b, h, t in ((0, 0, 0), (1, 1, 3), (2, 0, 4), (2, 1, 1)):
        position = float(positions.expand(3, 5)[b, t])
        row = heads[b, h, t].tolist()
        for i, (x, y) in enumerate(places(width, pairs)):
            turned = complex(row[x], row[y]) * cmath.exp(1j * position * 50.0 ** (-2 * i / width))
            wanted[b, h, t, x], wanted[b, h, t, y] = turned.real, turned.imag
        torch.testing.assert_close(found[b, h, t], wanted[b, h, t])
    assert torch.equal(found[..., width:], heads[..., width:])
    assert torch.equal(torch.signbit(found[..., width:]), torch.signbit(heads[..., width:]))


THEIRS = {
    "halves": ("transformers.models.llama.modeling_llama", lambda x: torch.cat([x, x], -1)),
    "neighbours": ("transformers.models.cohere.modeling_cohere",
                   lambda x: x.repeat_interleave(2, -1)),
}  # fmt: skip


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("width", [8, 6])
def test_numbers_are_those_of_hugging_face(pairs: str, width: int) -> None:
    torch.manual_seed(1)
    name, widened = THEIRS[pairs]
    modeling = pytest.importorskip(name)
    query, key = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    positions = torch.randint(0, 90, (2, 5))
    speed = 1.0 / (10000.0 ** (torch.arange(0, width, 2, dtype=torch.float) / width))
    angles = widened(positions[..., None].float() * speed)
    theirs = modeling.apply_rotary_pos_emb(
        query[..., :width], key[..., :width], angles.cos(), angles.sin()
    )
    rotary = Rotary(width, pairs=pairs)
    for heads, wanted in zip((query, key), theirs, strict=True):
        whole = torch.cat([wanted, heads[..., width:]], -1)
        torch.testing.assert_close(rotary(heads, positions), whole, atol=2e-5, rtol=2e-5)


def test_llama_s_own_table() -> None:
    modeling = pytest.importorskip("transformers.models.llama.modeling_llama")
    torch.manual_seed(2)
    config = modeling.LlamaConfig(
        hidden_size=24, num_attention_heads=3, rope_parameters={"rope_type": "default",
                                                               "rope_theta": 500.0}
    )  # fmt: skip
    query, positions = torch.randn(2, 3, 5, 8), torch.randint(0, 90, (2, 5))
    table = modeling.LlamaRotaryEmbedding(config)(query, positions)
    wanted, _ = modeling.apply_rotary_pos_emb(query, query, *table)
    found = Rotary(8, base=500.0)(query, positions)
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=2e-5)


def scores(rotary: Rotary, query: Tensor, key: Tensor, at: Tensor, of: Tensor) -> Tensor:
    return rotary(query, at) @ rotary(key, of).transpose(2, 3)


def drawn(kind: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw queries [3, 2, 5, 7], keys [3, 2, 11, 7] and where they stand."""
    torch.manual_seed(3)
    query, key = torch.randn(3, 2, 5, 7, dtype=kind), torch.randn(3, 2, 11, 7, dtype=kind)
    return query, key, torch.randint(0, 40, (3, 5)), torch.randint(0, 40, (11,))


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("shift", [7, -3.25, 0.1])
def test_scores_depend_on_differences_alone(pairs: str, shift: float) -> None:
    query, key, at, of = drawn()
    rotary = Rotary(6, pairs=pairs)
    near = scores(rotary, query, key, at, of)
    at, of = (x.double() + shift for x in (at, of))
    torch.testing.assert_close(scores(rotary, query, key, at, of), near)
    assert not torch.allclose(scores(rotary, query, key, at, of + 1), near)
    one_sided = rotary(query, at) @ key.transpose(2, 3)
    moved = rotary(query, at + shift) @ key.transpose(2, 3)
    assert not torch.allclose(one_sided, moved)  # why a key is turned as well


def test_late_positions_lose_nothing() -> None:
    query, key, at, of = drawn(torch.float32)
    near, far = (scores(Rotary(6), query, key, at + n, of + n) for n in (0, 10**7))
    torch.testing.assert_close(far, near, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pairs", PAIRS)
def test_lengths_are_kept_and_position_0_changes_nothing(pairs: str) -> None:
    query, _, at, _ = drawn()
    rotary = Rotary(6, pairs=pairs)
    torch.testing.assert_close(rotary(query, at).norm(dim=-1), query.norm(dim=-1))
    assert torch.equal(rotary(query, torch.zeros(5)), query)
    back = rotary(rotary(query, at), -at)
    torch.testing.assert_close(back, query)


def test_the_pairings_are_one_turn_in_two_orders() -> None:
    query, _, at, _ = drawn()
    order = [0, 2, 4, 1, 3, 5, 6]  # the left numbers of neighbours, the right ones, what passes
    neighbours = Rotary(6, pairs="neighbours")(query, at)
    assert torch.equal(Rotary(6)(query[..., order], at), neighbours[..., order])
    assert not torch.allclose(Rotary(6)(query, at), neighbours)


def test_integers_and_floats_stand_at_the_same_places() -> None:
    query, _, at, _ = drawn()
    rotary, wanted = Rotary(6), None
    for kind in (torch.int64, torch.uint8, torch.float32, torch.bfloat16):
        found = rotary(query, at.to(kind))
        wanted = found if wanted is None else wanted
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("pairs", PAIRS)
def test_half_precision_is_rounded_once(kind: torch.dtype, pairs: str) -> None:
    query, _, at, _ = drawn(kind)
    rotary = Rotary(6, pairs=pairs)
    assert torch.equal(rotary(query, at + 4999), rotary(query.float(), at + 4999).to(kind))


def test_nothing_of_it_can_be_cast_away() -> None:
    query, _, at, _ = drawn(torch.float32)
    rotary = Rotary(6)
    wanted = rotary(query, at)
    assert not rotary.state_dict()
    assert torch.equal(rotary.to(torch.bfloat16)(query, at), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(rotary(query, at), wanted)


@pytest.mark.parametrize("pairs", PAIRS)
def test_gradients(pairs: str) -> None:
    query, _, at, _ = drawn()
    rotary = Rotary(6, pairs=pairs)
    query.requires_grad_()
    times = at.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x, p: rotary(x, p)[:2, :, :3], (query, times))


@pytest.mark.parametrize("sizes", [(0, 2, 5), (3, 0, 5), (3, 2, 0)], ids=str)
def test_no_rows(sizes: tuple[int, int, int]) -> None:
    heads = torch.zeros(*sizes, 7)
    assert Rotary(6)(heads, torch.zeros(sizes[2])).shape == heads.shape


HEADS = torch.zeros(3, 2, 5, 7)


@pytest.mark.parametrize(
    ("heads", "positions", "message"),
    [
        (HEADS[0], torch.zeros(5), r"`heads` must be a float tensor \[b, h, t, d\]"),
        (HEADS.long(), torch.zeros(5), "`heads` must be a float tensor"),
        (HEADS[..., :5], torch.zeros(5), "d at least 6, got .* of shape"),
        (HEADS, torch.zeros(6), r"`positions` must be \[t\] or \[b\|1, t\] with b = 3, t = 5"),
        (HEADS, torch.zeros(1), "t = 5"),
        (HEADS, torch.zeros(2, 5), "b = 3"),
        (HEADS, torch.zeros(5, 1), "b = 3, t = 5"),
        (HEADS, torch.zeros(3, 1, 5), "`positions` must be integers or floats"),
        (HEADS, torch.tensor(1.0), "`positions` must be integers or floats"),
        (HEADS, torch.zeros(5) > 0, "`positions` must be integers or floats"),
        (HEADS, list(range(5)), "`positions` must be integers or floats"),
        (HEADS, torch.tensor([0.0, 1.0, torch.inf, 3.0, 4.0]), "`positions` must be finite"),
        (HEADS, torch.zeros(5, device="meta"), "on cpu, got"),
    ],
)
def test_refusals(heads: Any, positions: Any, message: str) -> None:
    with pytest.raises(xa.ContractError, match=message):
        Rotary(6)(heads, positions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 5}, "`width` must be an even number, got 5"),
        ({"width": 0}, "`width` must be an integer of at least 2"),
        ({"width": 6.0}, "`width` must be an integer"),
        ({"base": 0.0}, "`base` must be a number above 0"),
        ({"base": -2}, "`base` must be"),
        ({"base": torch.inf}, "`base` must be"),
        ({"pairs": "interleaved"}, '`pairs` must be "halves" or "neighbours"'),
        ({"pairs": None}, "`pairs` must be"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(xa.ContractError, match=message):
        Rotary(**({"width": 6} | options))


def test_options_are_shown() -> None:
    assert repr(Rotary(6)) == "Rotary(width=6, base=10000.0, pairs='halves')"


@pytest.mark.parametrize("pairs", PAIRS)
def test_one_graph_for_every_size(pairs: str) -> None:
    torch.compiler.reset()
    torch.manual_seed(4)
    rotary = Rotary(6, pairs=pairs)
    compiled = torch.compile(rotary, fullgraph=True, dynamic=True, backend="aot_eager")
    for b, t in ((2, 5), (3, 7), (5, 11)):
        given = torch.randn(b, 2, t, 7), torch.randint(0, 90, (b, t))
        torch.testing.assert_close(compiled(*given), rotary(*given))
