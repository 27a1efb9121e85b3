"""The native kernel against the definition: instruction sets, dtypes, owners, masks, layouts."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.attention.choose import choose
from crossattention.kernels.contract import Problem, Score
from crossattention.kernels.native import Native
from crossattention.kernels.native import library as native_library
from crossattention.kernels.native.build import build, compiler
from crossattention.kernels.native.library import INSTRUCTIONS, absent, runs_here
from crossattention.mask import Mask
from crossattention.owner import Owner
from kernels.test_linear import (
    test_each_group_of_outputs_maps_its_own_rows,
    test_it_is_the_same_product,
)
from problems import MASKS, OWNERS, masks, streams

HERE = [name for name in INSTRUCTIONS if runs_here(name)]
TOLERANCE = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SIZES: dict[str, dict[str, int]] = {
    "primes": {},
    "vectors": {"d": 32, "e": 16, "s": 31},
    "wide": {"d": 64, "e": 48, "s": 37, "t": 29},
    "odd": {"d": 71, "e": 5, "s": 33, "t": 6},
    "raw": {"d": 160, "e": 160, "s": 18, "t": 3},
    "one": {"s": 1, "t": 1},
}


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def _threads(request: pytest.FixtureRequest) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def same(found: Tensor, wanted: Tensor, tolerance: float = 3e-6) -> None:
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance, equal_nan=False)


def test_with_a_compiler_the_kernel_is_here() -> None:
    if compiler() is None:
        pytest.skip("no C++ compiler: the kernel is an optional part")
    assert absent() == "" and "portable" in HERE


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("instructions", HERE)
def test_native_equals_the_definition(
    instructions: str, dtype: torch.dtype, owner: str, size: str
) -> None:
    torch.manual_seed(1)
    kernel = Native(instructions=instructions)
    query, key, value = streams(OWNERS[owner], dtype=dtype, **SIZES[size])
    b, t, s = len(OWNERS[owner]), query.shape[2], key.shape[2]
    for mask in MASKS if s > 4 and t > 1 else MASKS[:1]:
        for softcap in (None, 2.0):
            options = {"owner": OWNERS[owner], "softcap": softcap}
            options |= {} if mask == "none" else masks(mask, b, 4, t, s)
            found, lse = xa.attend_with_lse(query, key, value, **options, kernel=kernel)
            right, total = xa.attend_with_lse(query, key, value, **options, kernel="reference")
            same(found, right, TOLERANCE[dtype])
            same(lse, total, 1e-5)
            assert torch.equal(xa.attend(query, key, value, **options, kernel=kernel), found)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("rows", [255, 256, 257, 513, 1543, 4099])
@pytest.mark.parametrize("beams", [1, 5, 7, 53])
def test_long_memories_in_parts(beams: int, rows: int) -> None:
    torch.manual_seed(2)
    query, key = torch.randn(2 * beams, 2, 1, 32) * 3, torch.randn(2, 1, rows, 32)
    value, owner = torch.randn(2, 1, rows, 24), Owner.shared(2, beams)
    for lengths in (None, [rows, 1], [0, rows - 1]):
        given = {"lengths": lengths, "owner": owner}
        found = xa.attend_with_lse(query, key, value, **given, kernel="native")
        right = xa.attend_with_lse(query, key, value, **given, kernel="matmul")
        for ours, wanted in zip(found, right, strict=True):
            same(ours, wanted, 1e-5)


@pytest.mark.parametrize("d", [16, 32, 64, 128, 160])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("instructions", HERE)
def test_any_number_of_queries(instructions: str, dtype: torch.dtype, d: int) -> None:
    """Each number of queries that is held in registers, and of rows that end in part of a block."""
    torch.manual_seed(8)
    for queries in (*range(1, 14), 47, 48, 49, 97):
        query, rows = torch.randn(1, 1, queries, d).to(dtype), 23 if queries % 2 else 71
        key, value = torch.randn(2, 1, 1, rows, d).to(dtype)
        found = xa.attend_with_lse(query, key, value, kernel=Native(instructions=instructions))
        right = xa.attend_with_lse(query, key, value, kernel="reference")
        same(found[0], right[0], TOLERANCE[dtype])
        same(found[1], right[1], 1e-5)


@pytest.mark.parametrize("instructions", HERE)
def test_any_strides(instructions: str) -> None:
    torch.manual_seed(3)
    kernel = Native(instructions=instructions)
    for d, s in ((32, 31), (19, 33)):
        query, key, value = streams([0, 1, 2], dtype=torch.float32, d=d, e=d, s=s)
        wanted = xa.attend(query, key, value, kernel="reference")
        for first, second in ((1, 2), (2, 3), (0, 3)):
            laid = [
                x.transpose(first, second).contiguous().transpose(first, second)
                for x in (query, key, value)
            ]
            same(xa.attend(*laid, kernel=kernel), wanted)
        half = [torch.stack([x, x + 1], -1).flatten(-2)[..., ::2] for x in (query, key, value)]
        assert half[0].stride(-1) == 2
        same(xa.attend(*half, kernel=kernel), wanted)
        one = [x[:1, :1].expand_as(x) for x in (key, value)]
        copies = [x.contiguous() for x in one]
        same(xa.attend(query, *one, kernel=kernel), xa.attend(query, *copies, kernel="reference"))
        flat = [x[:, :, :1].expand_as(x) for x in (key, value)]
        copies = [x.contiguous() for x in flat]
        same(xa.attend(query, *flat, kernel=kernel), xa.attend(query, *copies, kernel="reference"))


@pytest.mark.parametrize("sizes", [{"s": 0}, {"t": 0}, {"d": 0}, {"e": 0}, {"d": 0, "e": 0}])
def test_zero_sizes(sizes: dict[str, int]) -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32, **sizes)
    found = xa.attend_with_lse(query, key, value, kernel="native")
    right = xa.attend_with_lse(query, key, value, kernel="reference")
    for ours, wanted in zip(found, right, strict=True):
        same(ours, wanted)
    nobody = xa.attend(query[:0], key, value, owner=[], kernel="native")
    assert nobody.shape == (0, 4, query.shape[2], value.shape[-1])


@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize("hidden_by", ["visible", "bias", "lengths"])
@pytest.mark.parametrize("d", [3, 32])
def test_a_row_that_is_hidden_is_not_multiplied(d: int, hidden_by: str, instructions: str) -> None:
    """Right for each query: NaN for those that see the row, the clean numbers for the others."""
    torch.manual_seed(4)
    query, key, value = streams([0, 0, 2, 1], dtype=torch.float32, d=d, e=d)
    sees = torch.ones(4, 1, 5, 7, dtype=torch.bool)
    sees[..., 5:] = False
    if hidden_by == "visible":
        sees[0, 0, 2, 6] = True  # one query of two that share a memory sees it
    options = {
        "visible": {"visible": sees},
        "bias": {"bias": torch.zeros(4, 1, 5, 7).masked_fill(~sees, -torch.inf)},
        "lengths": {"lengths": [5, 5, 5]},
    }[hidden_by]
    kernel = Native(instructions=instructions)
    clean = xa.attend(query, key, value, owner=[0, 0, 2, 1], kernel=kernel, **options)
    for garbage in (torch.nan, torch.inf, -torch.inf):
        key[:, :, 5:], value[:, :, 5:] = garbage, garbage
        read = xa.attend(query, key, value, owner=[0, 0, 2, 1], kernel=kernel, **options)
        sees_it = torch.zeros(4, 4, 5, dtype=torch.bool)
        sees_it[0, :, 2] = hidden_by == "visible"
        sick = read.isnan().any(-1)
        assert torch.equal(sick, sees_it) or (garbage == garbage and not sick[~sees_it].any())
        assert torch.equal(read[~sees_it], clean[~sees_it])


def test_infinite_scores_and_numbers_are_what_they_are_in_the_definition() -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    key[0, 0, 1], key[1, 1, 2], value[2, 0, 3] = torch.inf, torch.nan, torch.inf
    found = xa.attend_with_lse(query, key, value, kernel="native")
    right = xa.attend_with_lse(query, key, value, kernel="reference")
    for ours, wanted in zip(found, right, strict=True):
        assert torch.equal(ours.isfinite(), wanted.isfinite())
        same(ours[ours.isfinite()], wanted[ours.isfinite()], 1e-5)


@pytest.mark.parametrize("instructions", HERE)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_halves_are_read_and_rounded_as_torch_does(dtype: torch.dtype, instructions: str) -> None:
    """One row of weight 1: each of the 65,536 numbers comes back as it is."""
    every = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    value = every[every.isfinite()].view(1, 1, 1, -1)
    zero = torch.zeros(1, 1, 1, 1, dtype=dtype)
    kernel = Native(instructions=instructions)
    assert torch.equal(xa.attend(zero, zero, value, kernel=kernel), value)
    drawn = torch.randn(1, 1, 1, 4096) * torch.logspace(-9, 5, 4096)
    narrow = xa.attend(zero, zero.float(), drawn, kernel=kernel)
    assert torch.equal(narrow, drawn.to(dtype))


@pytest.mark.parametrize("stream", TOLERANCE, ids=str)
@pytest.mark.parametrize("memory", TOLERANCE, ids=str)
def test_streams_of_two_dtypes(memory: torch.dtype, stream: torch.dtype) -> None:
    torch.manual_seed(5)
    query, key, value = streams([0, 0, 1], dtype=torch.float32, d=32, e=32)
    arguments = query.to(stream), key.to(memory), value.to(memory)
    found = xa.attend(*arguments, owner=[0, 0, 1], kernel="native")
    assert found.dtype == stream
    same(found, xa.attend(*arguments, owner=[0, 0, 1], kernel="reference"), TOLERANCE[stream])


@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 4, 5, 1), (2, 1, 1, 1)])
def test_offset_of_a_key_bias(shape: tuple[int, ...], softcap: float | None) -> None:
    torch.manual_seed(6)
    query, key, value = streams([0, 1], dtype=torch.float32)
    owner = Owner.of([0, 2], 3)
    score = Score(0.7, softcap, torch.randn(shape, dtype=torch.float64))
    problem = Problem(query, key, value, owner, Mask(), score, wants_lse=True)
    found, right = choose(problem, "native").run(problem), choose(problem, "reference").run(problem)
    same(found.value, right.value.float())
    same(found.lse_or_raise(), right.lse_or_raise().float(), 1e-5)


@pytest.mark.usefixtures("_threads")
def test_ragged_batches_and_parts_of_a_memory() -> None:
    """Laws 5 and 7: a padded batch is its members, and parts merge to the whole."""
    torch.manual_seed(7)
    query, key = torch.randn(3, 4, 5, 16), torch.randn(3, 2, 301, 16)
    value, lengths = torch.randn(3, 2, 301, 9), [301, 0, 17]
    together = xa.attend(query, key, value, lengths=lengths, kernel="native")
    for one, length in enumerate(lengths):
        each = slice(one, one + 1)
        alone = xa.attend(query[each], key[each, :, :length], value[each, :, :length])
        same(together[each], alone)
    parts = [
        xa.attend_with_lse(query, key[:, :, at], value[:, :, at], kernel="native")
        for at in (slice(0, 100), slice(100, 100), slice(100, 301))
    ]
    whole = xa.attend_with_lse(query, key, value, kernel="native")
    for ours, wanted in zip(xa.merge(parts), whole, strict=True):
        same(ours, wanted)


@pytest.mark.parametrize("lengths", [[9, 0, 2], [7, -3, 2]])
def test_lengths_that_nobody_checked_are_refused_before_reading(lengths: list[int]) -> None:
    """A compiled graph does not look at lengths, and beyond a memory's rows nothing is ours."""
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    problem = Problem(query, key, value, None, Mask(lengths=torch.tensor(lengths)), Score(0.5))
    with pytest.raises(xa.ContractError, match=f"values from {min(lengths)} to {max(lengths)}"):
        Native().run(problem)


def test_refusals_are_in_words() -> None:
    query = torch.zeros(1, 2, 3, 4)
    wide = query.double()
    for given, words in (
        ({"query": wide, "key": wide, "value": wide}, "reads float32"),
        ({"query": query.clone().requires_grad_(), "key": query, "value": query}, "no gradient"),
        ({"query": query, "key": query, "value": query, "dropout": 0.1}, "no dropout"),
    ):
        with pytest.raises(xa.NoKernelError, match=words):
            xa.attend(**given, kernel="native")
    with pytest.raises(xa.ContractError, match='"portable" or "avx2" or "avx512"'):
        Native(instructions="sse9")
    asked = query.clone().requires_grad_()
    none = (None,) * 5
    with pytest.raises(xa.NoKernelError, match="no_grad"):
        torch.ops.crossattention.native_read(asked, query, query, *none, 1.0, 0.0, False, -1)
    with torch.no_grad():
        assert not xa.attend(asked, query, query, kernel="native").requires_grad


def test_an_absent_library_is_said_to_be_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    native_library.load.cache_clear()
    try:
        query = torch.zeros(1, 2, 3, 4)
        said = str(xa.explain(query, query, query))
        assert "not built" in said and "two to four times" in said
        assert "kernels.native.build" in said
        assert xa.attend(query, query, query).shape == query.shape
        with pytest.raises(xa.NoKernelError, match="not built"):
            xa.attend(query, query, query, kernel="native")
        (tmp_path / native_library.LIBRARY).write_bytes(b"no library")
        native_library.load.cache_clear()
        assert "cannot be loaded" in str(xa.explain(query, query, query))
    finally:
        native_library.load.cache_clear()


READS = """
import torch, crossattention
query = torch.zeros(1, 2, 3, 4)
crossattention.attend(query, query, query, kernel="native")
print(open("/proc/self/maps").read())
"""


def test_the_process_has_one_openmp_runtime() -> None:
    """In a process of its own: other packages, scikit-learn for one, bring runtimes along."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("the system does not tell which libraries are loaded")
    told = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True)
    loaded = {line.split()[-1] for line in told.stdout.splitlines() if ".so" in line}
    runtimes = {path for path in loaded if re.search(r"lib(g|i)?omp[.\d-]", Path(path).name)}
    assert len(runtimes) == 1, runtimes
    assert any("crossattention_native" in path for path in loaded)


def test_costs_and_choice() -> None:
    query, key = torch.zeros(20, 8, 1, 64), torch.zeros(4, 8, 1500, 64)
    with torch.no_grad():
        found = xa.explain(query, key, key, owner=Owner.shared(4, 5))
        assert found.chosen == "native"
    native = next(each for each in found.kernels if each.name == "native")
    assert native.multiply_adds == 20 * 8 * 1500 * 128
    assert not math.isnan(native.seconds)


def test_what_is_traced_or_negated_lazily_is_read_as_it_is() -> None:
    query = torch.randn(1, 2, 3, 8)
    with torch.no_grad():
        traced = torch.jit.trace(lambda x: xa.attend(x, x, x), query, check_trace=False)
        same(traced(query + 1), xa.attend(query + 1, query + 1, query + 1))
        same(xa.attend(torch._neg_view(query), query, query), xa.attend(-query, query, query))


FAULTS = {
    1: lambda: test_ragged_batches_and_parts_of_a_memory(),
    2: lambda: test_streams_of_two_dtypes(torch.float32, torch.float32),
    3: lambda: test_long_memories_in_parts(53, 1543),
    4: lambda: test_a_row_that_is_hidden_is_not_multiplied(3, "visible", "portable"),
    5: lambda: test_long_memories_in_parts(1, 1543),
    6: lambda: test_a_row_that_is_hidden_is_not_multiplied(3, "visible", "portable"),
    7: lambda: test_offset_of_a_key_bias((1, 1, 1, 1), None),
    8: lambda: test_any_strides("portable"),
    9: lambda: test_halves_are_read_and_rounded_as_torch_does(torch.bfloat16, "portable"),
    10: lambda: test_it_is_the_same_product("portable", 16),
    11: lambda: test_each_group_of_outputs_maps_its_own_rows("portable"),
}


@pytest.mark.parametrize("fault", [0, *FAULTS])
def test_faults_in_the_source_are_noticed(
    fault: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is compiled into a library of its own, on which the test beside it must fail."""
    if compiler() is None:
        pytest.skip("no C++ compiler")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    build(tmp_path / native_library.LIBRARY, mutant=fault)
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    for found in (native_library.load, native_library.best):
        found.cache_clear()
    try:
        for number, test in FAULTS.items():
            if fault == 0:
                test()
            elif fault == number:
                with pytest.raises(AssertionError):
                    test()
    finally:
        torch.set_num_threads(before)
        for found in (native_library.load, native_library.best):
            found.cache_clear()
