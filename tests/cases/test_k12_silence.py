"""K12, silence: what cannot be meant is refused, and what is accepted can change the output."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem
from cases.judge import right
from cases.paths import KERNELS, LAYERS, Path, build, count_calls, masks
from cases.runner import check, every_form, name

CASES = load("k12_silence")
PACKED = {"packed lengths"}
RAISES = {"ValueError": ValueError, "IndexError": IndexError, "TypeError": TypeError}
REFUSED = [case for case in CASES if case.op == "error" and case.name not in PACKED]
LAYER_NAMES = {"key": "memory", "owner": "index"}  # what a layer calls them
ATTEND = [case for case in REFUSED if case.inputs["call"] == "attend"]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


def refused(case: Case, call: Any, names: dict[str, str] | None = None) -> None:
    """See a call raise what the case says, with every word of it."""
    wanted = case.expect["error"]
    with pytest.raises(tuple(RAISES[x] for x in wanted["raises"].split(" or "))) as raised:
        call()
    text = str(raised.value)
    for word in wanted["names"]:
        assert word in text or (names or {}).get(word, word) in text, text


def arguments(case: Case) -> dict[str, Any]:
    """Give a call's arguments as the case writes them, wrong ones included."""
    given = case.tensors(torch.float64)
    found = {n: given[n] for n in ("query", "key", "value")} | masks(given)
    known = {*found, "call", "layout", "causal", "query_lengths", "key_lengths"}
    return found | {n: x for n, x in given.items() if n not in known}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", ATTEND, ids=name)
def test_functions_refuse(case: Case, kernel: str) -> None:
    given = arguments(case)
    refused(case, lambda: xa.attend(**given, kernel=kernel))
    refused(case, lambda: xa.attend_with_lse(**given, kernel=kernel))
    refused(case, lambda: xa.explain(**given, kernel=kernel))
    if case.name not in ("rows of key and value", "dropout 1.5"):
        del given["value"]
        refused(case, lambda: xa.attention_weights(**given))


@pytest.mark.parametrize("form", LAYERS[:2])
@pytest.mark.parametrize("case", REFUSED, ids=name)
def test_layers_refuse(case: Case, form: str) -> None:
    if case.name in ("causal without a corner", "key width"):
        pytest.skip("a layer has no such argument: its heads have one key width")
    refused(case, lambda: by_layer(case.tensors(torch.float64), form), LAYER_NAMES)


def by_layer(given: dict[str, Any], form: str) -> None:
    """Do what a case does, with a layer."""
    if "query_rows" in given:
        h, d, c = given["w_q"].shape
        layer = xa.CrossAttention(c, h, memory_width=given["w_k"].shape[2], key_width=d).double()
        layer(given["query_rows"], layer.remember(given["memory"], form=form))
        return
    (_, h, _, d), g = given["query"].shape, given["key"].shape[1]
    layer = xa.CrossAttention(h * d, h, memory_heads=g, memory_width=g * d,
                              dropout=given.get("dropout", 0.0)).double()  # fmt: skip
    query, key, value = (given[n].transpose(1, 2).flatten(2) for n in ("query", "key", "value"))
    lengths = given.get("lengths")
    memory = layer.remember(key, lengths, value_rows=value, form=form)
    if "owner" in given:
        memory = memory.select(torch.tensor(given["owner"]))
    unknown = {n: given[n] for n in ("visible", "region_masks") if n in given}
    layer(query, memory, **unknown)


@pytest.mark.xfail(strict=True, raises=TypeError, reason="needs the packed layout")
@pytest.mark.parametrize("case", [case for case in CASES if case.name in PACKED], ids=name)
def test_packed_lengths_are_compared_with_rows(case: Case) -> None:
    given = case.tensors(torch.float64)
    lengths = {n: given[n] for n in ("query_lengths", "key_lengths")}
    with pytest.raises(ValueError, match="key"):
        xa.attend(*(given[n] for n in ("query", "key", "value")), **lengths)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("case", [case for case in CASES if case.id == "C46"], ids=name)
def test_every_projection_is_called_once(case: Case, mode: str) -> None:
    for dtype in case.dtypes:
        given = case.tensors(dtype)
        layer, query, rows, _ = build(given, Path("fresh", mode=mode))
        calls = count_calls(layer, case.expect["counts"])
        found = layer(query, rows)
        right("output", found, case.expected("output"), case.tolerance(dtype) or 0)
        assert calls == case.expect["counts"]
        torch.testing.assert_close(layer.weights(query, rows).double(), case.expected("weights"),
                                   atol=1e-5, rtol=1e-5)  # fmt: skip


class Doubled(nn.Module):
    """Double what another module returns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Map rows."""
        doubled: torch.Tensor = 2 * self.inner(rows)
        return doubled


@pytest.mark.parametrize("form", LAYERS)
def test_a_replaced_projection_is_the_one_used(form: str) -> None:
    plain, doubled = find(CASES, "projections are called"), find(CASES, "output projection doubled")
    layer, query, rows, _ = build(plain.tensors(torch.float64), Path(form))

    def read() -> torch.Tensor:
        return layer(query, rows if form == "fresh" else layer.remember(rows, form=form))

    before = read()
    layer.output_projection = Doubled(layer.output_projection)
    torch.testing.assert_close(read(), doubled.expected("output"))
    layer.output_projection = layer.output_projection.inner
    for projection in ("query", "value", "key"):
        inner = layer.get_submodule(f"{projection}_projection")
        handle = inner.register_forward_hook(lambda _, __, found: 3 * found)
        if form == "raw" and projection != "query":
            with pytest.raises(xa.ContractError, match="hooks"):
                read()
        else:
            assert not torch.allclose(read(), before)
        handle.remove()
        torch.testing.assert_close(read(), before)


def test_saved_weights_come_back() -> None:
    torch.manual_seed(41)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    layer = xa.from_torch(theirs)
    again = xa.CrossAttention(8, 2)
    again.load_state_dict(layer.state_dict())
    packed = torch.cat([again.get_submodule(f"{x}_projection").weight
                        for x in ("query", "key", "value")])  # fmt: skip
    assert torch.equal(packed, theirs.in_proj_weight)
    query, rows = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    torch.testing.assert_close(again(query, rows), theirs(query, rows, rows)[0])


CHANGES: dict[str, Any] = {
    "query": lambda x: x.flip(2), "key": lambda x: x.flip(2), "value": lambda x: x.flip(2),
    "visible": torch.arange(7) > 2, "bias": torch.arange(7.0).double().expand(5, 7),
    "lengths": [3, 3, 3], "owner": [2, 0, 0], "causal": -1, "softcap": 0.1, "scale": 3.0,
    "dropout": 0.9, "kernel": "nonsense",
}  # fmt: skip


@pytest.mark.parametrize("function", [xa.attend, xa.attend_with_lse, xa.attention_weights])
def test_every_argument_can_change_the_output(function: Any) -> None:
    torch.manual_seed(42)
    known = inspect.signature(function).parameters
    assert set(known) <= set(CHANGES), "a new argument: say here how it changes the output"
    given = {n: problem()[n] for n in ("query", "key", "value") if n in known}
    before = results(function(**given))
    for argument in known:
        change = CHANGES[argument]
        if argument == "visible":
            change = change.expand(5, 7)
        changed = given | {argument: change(given[argument]) if callable(change) else change}
        if argument == "kernel":
            with pytest.raises(xa.ContractError, match="`kernel` must be"):
                function(**changed)
            continue
        after = results(function(**changed))
        assert not all(torch.allclose(x, y) for x, y in zip(before, after, strict=True)), argument


def results(found: Any) -> list[torch.Tensor]:
    """Give a function's results as a list."""
    return list(found) if isinstance(found, tuple) else [found]


LAYER_CHANGES: dict[str, Any] = {
    "memory_width": 5, "key_width": 3, "value_width": 3, "memory_heads": 1, "bias": False,
    "dropout": 0.5,
}  # fmt: skip


def test_every_choice_of_a_layer_shows() -> None:
    known = [*inspect.signature(xa.CrossAttention).parameters][2:]
    assert set(known) == set(LAYER_CHANGES), "a new choice: say here how it shows"
    plain = xa.CrossAttention(8, 2)
    shapes = {n: list(x.shape) for n, x in plain.named_parameters()}
    for choice, value in LAYER_CHANGES.items():
        other = xa.CrossAttention(8, 2, **{choice: value})
        if choice == "dropout":
            query, rows = torch.ones(1, 3, 8), torch.randn(1, 5, 8)
            assert not torch.equal(other.train()(query, rows), other(query, rows))
        else:
            assert {n: list(x.shape) for n, x in other.named_parameters()} != shapes, choice


def test_every_setting_of_a_layer_changes_what_it_reads() -> None:
    torch.manual_seed(43)
    query, rows = torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    settings: dict[str, Any] = {
        "scale": 3.0, "softcap": 0.1, "query_norm": nn.LayerNorm(4), "key_norm": nn.LayerNorm(4),
        "null_row": xa.nn.null_row.NullRow(2, 4, 4), "query_projection": nn.Linear(8, 8),
        "key_projection": nn.Linear(8, 8), "value_projection": nn.Linear(8, 8),
        "output_projection": nn.Linear(8, 8),
    }  # fmt: skip
    for form in LAYERS[:2]:
        for setting, value in settings.items():
            if (form, setting) == ("raw", "key_norm"):
                continue  # refused in words: see the layer's own tests
            layer = xa.CrossAttention(8, 2).eval()
            before = layer(query, layer.remember(rows, form=form))
            setattr(layer, setting, value)
            after = layer(query, layer.remember(rows, form=form))
            assert not torch.allclose(before, after), setting
