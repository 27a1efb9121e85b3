"""K1, the empty set: a row that may read nothing gives 0, and spoils nothing beside it."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem, some_visible
from cases.judge import right, zero
from cases.paths import KERNELS, LAYERS, Path, build, compute, offered
from cases.runner import EVERY_PATH, check, every_form, name
from crossattention.media import from_media

CASES = load("k1_empty_set")
PICTURES = [case for case in CASES if case.id == "C04"]
STREAMS = ("query", "key", "value")


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_empty_rows_might_as_well_not_be_there(path: Path) -> None:
    torch.manual_seed(0)
    given, kept = problem() | {"visible": some_visible(3, 1, 5, 7)}, [0, 2, 3]
    given["visible"][:, :, kept, 0] = True
    given["visible"][:, :, [1, 4]] = False
    given["upstream"][:, :, [1, 4]] = 1e30
    fewer = {n: given[n][:, :, kept] for n in ("query", "visible", "upstream")}
    wanted = offered(path, STREAMS)
    whole, without = compute(given, path, wanted), compute(given | fewer, path, wanted)
    for what in {"output", "weights", "lse"} & whole.keys():
        torch.testing.assert_close(whole[what][:, :, kept], without[what])
        nothing = torch.full_like(whole[what][:, :, [1, 4]], -torch.inf if what == "lse" else 0)
        assert torch.equal(whole[what][:, :, [1, 4]], nothing)
    if wanted:
        left, right = whole["grads"], without["grads"]
        torch.testing.assert_close(left["query"][:, :, kept], right["query"])
        assert not left["query"][:, :, [1, 4]].any()
        for what in ("key", "value"):
            torch.testing.assert_close(left[what], right[what])


def pictured(case: Case) -> torch.Tensor:
    """Turn C04's counts of pictures into `visible`."""
    routing = case.inputs["routing"]
    count, media = (torch.tensor(routing[n]) for n in ("count", "block_of_key"))
    return from_media(count, media, reads=routing["mode"])


def mixed(form: str, change: float | None = None) -> tuple[xa.CrossAttention, Any, Any]:
    """Build C02's layer and its reading; `change` fills the memory that nobody may read."""
    given = find(CASES, "C02").tensors(torch.float64)
    if change is not None:
        given["memory"][0] = change
    layer, query, rows, _ = build(given, Path(form))
    memory = layer.remember(rows, given["lengths"], form=form)
    return layer, query, layer(query, memory, visible=given["visible"])


@pytest.mark.parametrize("form", LAYERS[:2])
def test_the_stream_of_an_empty_row_is_unchanged_to_the_bit(form: str) -> None:
    _, query, output = mixed(form)
    stream, expected = query + output, find(CASES, "C02").expected("residual_output")
    torch.testing.assert_close(stream, expected, atol=1e-10, rtol=1e-10)
    for row in ((0, 0), (0, 1), (2, 0)):
        assert torch.equal(stream[row], query[row])


@pytest.mark.parametrize("change", [1e4, float("nan")])
@pytest.mark.parametrize("form", LAYERS[:2])
def test_a_memory_that_nobody_reads_may_hold_anything(form: str, change: float) -> None:
    results = []
    for filled in (None, change):
        layer, _, output = mixed(form, filled)
        gradients = torch.autograd.grad(output.sum(), list(layer.parameters()))
        results.append((output, *gradients))
    for ours, clean in zip(*results, strict=True):
        assert torch.equal(ours, clean)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("sizes", [{"s": 0}, {"b": 0}, {"t": 0}, {"h": 0, "g": 1}], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_zero_sizes_keep_dtype_and_gradients(
    sizes: dict[str, int], kernel: str, masked: bool
) -> None:
    given = problem(torch.float32, **sizes)
    query, key, value = (given[n].requires_grad_() for n in STREAMS)
    lengths = [0] * len(key) if masked else None
    visible = torch.ones(1, 1, 1, key.shape[2], dtype=torch.bool) if masked else None
    found = xa.attend(query, key, value, lengths=lengths, visible=visible, kernel=kernel)
    assert (found.dtype, found.shape) == (torch.float32, given["upstream"].shape)
    for leaf, grad in zip(
        (query, key, value), torch.autograd.grad(found.sum(), (query, key, value)), strict=True
    ):
        assert grad.shape == leaf.shape
        assert not grad.any()


def test_a_layer_without_key_width_is_refused() -> None:
    with pytest.raises(xa.ContractError, match="at least 1"):
        xa.CrossAttention(4, 2, key_width=0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", PICTURES, ids=name)
def test_rows_find_the_pictures_before_them_by_themselves(case: Case, kernel: str) -> None:
    for dtype in case.dtypes:
        given, tolerance = case.tensors(dtype), case.tolerance(dtype)
        assert tolerance is not None
        query, key, value = (given[n] for n in STREAMS)
        visible = pictured(case)
        assert visible.tolist() == case.expect["visible"]
        options = {"scale": 1.0, "visible": visible, "kernel": kernel}
        found = xa.attend(query, key, value, **options)
        weights = xa.attention_weights(query, key, scale=1.0, visible=visible)
        right("output", found, case.expected("output"), tolerance)
        right("weights", weights, case.expected("weights"), tolerance)
        right("lse", xa.attend_with_lse(query, key, value, **options)[1],
              case.expected("lse"), tolerance)  # fmt: skip
        zero("text before the first picture", found, ~visible.any(-1, keepdim=True))


def test_the_numbers_tell_the_pictures_apart() -> None:
    latest, so_far = PICTURES
    numbers = [latest.expected("output"), so_far.expected("output"),
               torch.tensor(latest.wrong).double()]  # fmt: skip
    assert all(not torch.equal(a, b) for a, b in combinations(numbers, 2))
