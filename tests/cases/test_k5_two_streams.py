"""K5, habits of self-attention: two streams have two lengths, two widths and two masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem
from cases.judge import right
from cases.paths import KERNELS, LAYERS, Path, compute, streams
from cases.runner import EVERY_PATH, agree, check, every_form, name
from crossattention.nn import Rotary

CASES = load("k5_two_streams")
ROTARY = [case for case in CASES if case.id == "C25"]
UNPADDED = [case for case in CASES if case.id == "C23"]
WIDTHS = [(c, rows, values) for c in (5, 6) for rows in (3, 6) for values in (2, 3, 6)]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


def layered(c: int, c_k: int, c_v: int, d: int, e: int, out: int) -> dict[str, Any]:
    """Draw a layer's problem: streams of widths c, c_k, c_v, heads of widths d, e, output `out`."""
    shapes = {
        "query_rows": (3, 5, c), "memory": (3, 7, c_k), "value_memory": (3, 7, c_v),
        "w_q": (4, d, c), "w_k": (2, d, c_k), "w_v": (2, e, c_v), "w_o": (out, 4, e),
        "b_q": (4, d), "b_k": (2, d), "b_v": (2, e), "b_o": (out,),
    }  # fmt: skip
    return {n: torch.randn(shape, dtype=torch.float64) for n, shape in shapes.items()}


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_every_pair_of_widths(widths: tuple[int, int, int], form: str) -> None:
    torch.manual_seed(13)
    for d, e, out in ((2, 2, 5), (2, 3, 11), (3, 1, 6)):
        given = layered(*widths, d, e, out)
        query, key, value = streams(given)
        scores = query @ key.repeat_interleave(2, 1).transpose(2, 3) * d**-0.5
        read = scores.softmax(-1) @ value.repeat_interleave(2, 1)
        expected = torch.einsum("bhte,ohe->bto", read, given["w_o"]) + given["b_o"]
        for kernel in KERNELS:
            if kernel == "fused" and (d, widths[1]) != (e, widths[2]):
                continue  # in either form it has one width for keys and values
            agree(compute(given, Path(form, kernel)), {"output": expected})


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
@pytest.mark.parametrize(("t", "s"), [(1, 6), (4, 6), (6, 6), (7, 6), (6, 1), (2, 13)])
def test_no_row_is_hidden_unless_it_is_asked_for(path: Path, t: int, s: int) -> None:
    torch.manual_seed(14)
    given = problem(t=t, s=s)
    scores = given["query"] @ given["key"].repeat_interleave(2, 1).transpose(2, 3) * 11**-0.5
    weights = scores.softmax(-1)
    expected = weights @ given["value"].repeat_interleave(2, 1)
    agree(compute(given, path), {"weights": weights, "output": expected})


@pytest.mark.parametrize("t", [2, 5, 7, 9])
@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_padding_of_the_query_changes_no_other_row(path: Path, t: int) -> None:
    torch.manual_seed(15)
    given = problem(t=t) | {"lengths": [4, 7, 2]}
    clean = compute(given, path)
    given["query"] = given["query"].clone()
    given["query"][0, :, 1:], given["query"][2, :, t - 1 :] = torch.nan, 1e30
    found, real = compute(given, path), torch.ones(3, t, dtype=torch.bool)
    real[0, 1:], real[2, t - 1 :] = False, False
    for what in {"output", "weights", "lse"} & found.keys():
        left, right = (x[what].transpose(1, 2)[real] for x in (found, clean))
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"query": torch.ones(3, 2, 3)}, ["query", "3", "5"]),
        ({"rows": torch.ones(3, 7, 5)}, ["rows", "5", "3"]),
        ({"value_rows": torch.ones(3, 7, 3)}, ["value_rows", "3", "2"]),
    ],
    ids=["query", "rows", "value rows"],
)
def test_a_wrong_width_is_named(change: dict[str, torch.Tensor], names: list[str]) -> None:
    layer = xa.CrossAttention(5, 1, memory_width=(3, 2), key_width=2, value_width=3)
    right = {"query": torch.ones(3, 2, 5), "rows": torch.ones(3, 7, 3),
             "value_rows": torch.ones(3, 7, 2)}  # fmt: skip
    given = right | change
    with pytest.raises(xa.ContractError) as raised:
        layer(given["query"], layer.remember(given["rows"], value_rows=given["value_rows"]))
    assert all(word in str(raised.value) for word in names)


@pytest.mark.parametrize("form", LAYERS)
def test_the_default_scale_comes_from_the_key_width(form: str) -> None:
    torch.manual_seed(16)
    given = problem(d=5, e=7)
    agree(compute(given, Path(form)), compute(given | {"scale": 5**-0.5}, Path("attend")))


@pytest.mark.parametrize("pairs", ["halves", "neighbours"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", ROTARY, ids=name)
def test_rotary_positions(case: Case, kernel: str, pairs: str) -> None:
    rotary = Rotary(2, pairs=pairs)
    for dtype in case.dtypes:
        given, tolerance = case.tensors(dtype), case.tolerance(dtype)
        assert tolerance is not None
        at, of = (torch.tensor(given[n]) for n in ("query_positions", "key_positions"))
        query, key = rotary(given["query"], at), rotary(given["key"], of)
        if kernel == "fused":  # it has one width for keys and values
            given["value"] = torch.nn.functional.pad(given["value"], (0, 1))
        options = {"scale": 1.0, "kernel": kernel}
        value, lse = xa.attend_with_lse(query, key, given["value"], **options)
        right("output", value[..., :1], case.expected("output"), tolerance)
        right("lse", lse, case.expected("lse"), tolerance)
        found = xa.attend(query, key, given["value"], **options)
        right("output", found[..., :1], case.expected("output"), tolerance)
        weights = xa.attention_weights(query, key, scale=1.0)
        right("weights", weights, case.expected("weights"), tolerance)


def test_positions_of_the_other_stream_are_refused() -> None:
    given = ROTARY[0].tensors(torch.float64)
    with pytest.raises(xa.ContractError, match="`positions` must be .* t = 5"):
        Rotary(2)(given["key"], torch.tensor(given["query_positions"]))


@pytest.mark.xfail(strict=True, raises=TypeError, reason="needs the packed layout")
@pytest.mark.parametrize("case", UNPADDED, ids=name)
def test_packed_memories_keep_every_query_row(case: Case) -> None:
    given = case.tensors(torch.float64)
    rows = {n: given[n].transpose(1, 2) for n in ("query", "key", "value")}
    packed = [rows["query"].flatten(0, 1)]
    for n in ("key", "value"):
        packed.append(torch.cat([x[:k] for x, k in zip(rows[n], given["lengths"], strict=True)]))
    t = rows["query"].shape[1]
    found = xa.attend(*packed, scale=1.0, query_lengths=[t, t], key_lengths=given["lengths"])
    torch.testing.assert_close(found, case.expected("output").transpose(1, 2).flatten(0, 1))


def test_offsets_are_corners() -> None:
    for t, s in ((2, 5), (5, 2), (1, 4)):
        given = problem(t=t, s=s)
        streamed = [given[n] for n in ("query", "key", "value")]
        for corner, offset in (("top_left", 0), ("bottom_right", s - t)):
            left = xa.attend(*streamed, causal=corner)
            assert torch.equal(left, xa.attend(*streamed, causal=offset))


def test_the_numbers_tell_the_corners_apart() -> None:
    case = find(CASES, "2 over 5 top left")
    assert not torch.allclose(case.expected("output"), torch.tensor(case.wrong).double())
