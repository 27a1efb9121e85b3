from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from crossattention.attention.choose import KERNELS
from crossattention.errors import ContractError
from crossattention.kernels import costs
from crossattention.kernels.contract import Cost, Problem, Score
from crossattention.kernels.costs import DTYPES, FOLDER, SHIPPED, Rate, Table, shipped
from crossattention.mask import Mask

NAMES = ("avx512", "avx2", "default")


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_table_knows_every_kernel_of_every_dtype(name: str) -> None:
    table = Table.read(FOLDER / f"{name}.json")
    assert set(table.rates) == set(DTYPES)
    for rates in table.rates.values():
        assert set(rates) == {kernel.name for kernel in KERNELS}


@pytest.mark.parametrize(
    ("capability", "name"),
    [("AVX512", "avx512"), ("AVX2", "avx2"), ("DEFAULT", "default"), ("SVE256", "default")],
)
def test_instructions_choose_the_table(
    capability: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    found = shipped()
    assert found.name == f"{name}, shipped"
    assert found.rates == Table.read(FOLDER / f"{name}.json").rates


def test_seconds_add_up_term_by_term() -> None:
    rate = Rate(overhead=1.0, multiply_adds=4.0, bytes=8.0, piece=3.0, score=5.0)
    for cost, seconds in (
        (Cost(0, 0), 1.0), (Cost(8, 0), 3.0), (Cost(0, 16), 3.0),
        (Cost(0, 0, pieces=2), 7.0), (Cost(0, 0, scores=2), 11.0),
    ):  # fmt: skip
        assert rate.seconds(cost) == seconds


def test_float64_goes_by_float32_and_the_unknown_by_nothing() -> None:
    cost = Cost(10**6, 10**6)
    wide = SHIPPED.seconds("matmul", torch.float64, cost)
    assert wide == SHIPPED.seconds("matmul", torch.float32, cost)
    assert wide != SHIPPED.seconds("matmul", torch.float16, cost)
    assert math.isnan(SHIPPED.seconds("mine", torch.float32, cost))


def test_what_is_written_is_read_and_nothing_else_is_left(tmp_path: Path) -> None:
    rate = Rate(1.23456e-5, 1e10, 2e9, 0.0, 0.0)
    Table("any", {dtype: {"reference": rate, "matmul": rate} for dtype in DTYPES}).write(
        tmp_path / "mine.json"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    found = Table.read(str(tmp_path / "mine.json"))
    assert found.name == "mine.json"
    assert found.rates[torch.float16]["matmul"] == Rate(1.235e-5, 1e10, 2e9, 0.0, 0.0)


def test_a_write_that_fails_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.json"
    SHIPPED.write(path)
    before = path.read_text()

    def stop(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(costs.os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        Table("none", {}).write(path)
    assert path.read_text() == before


def _held() -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    rates = {
        str(dtype).removeprefix("torch."): {name: asdict(rate) for name, rate in each.items()}
        for dtype, each in SHIPPED.rates.items()
    }
    return {"rates": rates}  # type: ignore[dict-item]


def _broken(kind: str) -> object:
    held = _held()
    rates = held["rates"]["float32"]
    if kind == "dtype":
        del held["rates"]["float16"]
    elif kind == "kernel":
        del rates["matmul"]
    elif kind == "number":
        del rates["fused"]["bytes"]
    elif kind == "list":
        return [held]
    else:
        name, value = {
            "negative": ("overhead", -1.0), "zero": ("bytes", 0.0), "word": ("piece", "much"),
            "nan": ("score", math.nan), "infinite": ("multiply_adds", math.inf),
            "flag": ("piece", True),
        }[kind]  # fmt: skip
        rates["fused"][name] = value
    return held


@pytest.mark.parametrize(
    "kind",
    ["dtype", "kernel", "number", "list", "negative", "zero", "word", "nan", "infinite", "flag"],
)
def test_what_is_no_table_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(_held()))
    Table.read(path)
    path.write_text(json.dumps(_broken(kind)))
    with pytest.raises(ContractError, match="`table` must be a file that"):
        Table.read(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text("not a table")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.json", ".", "words.json", "bytes.json"):
        with pytest.raises(ContractError, match="`table` must be a file that"):
            Table.read(tmp_path / name)


def test_costs_count_what_masks_add() -> None:
    query, key = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 7, 4)
    plain = Problem(query, key, key, None, Mask(), Score(0.5))
    mask = Mask(torch.ones(2, 7, dtype=torch.bool), None, torch.zeros(1, 1, 5, 7))
    masked = Problem(query, key, key, None, mask, Score(0.5))
    scores = 2 * 3 * 5 * 7
    for kernel in KERNELS:
        less, more = kernel.cost(plain), kernel.cost(masked)
        assert less.multiply_adds == more.multiply_adds == scores * 8
        if kernel.name in ("fused", "native"):
            assert (less.scores, more.scores) == (scores, 3 * scores)
        elif kernel.name == "matmul":  # it holds them: more passes are more bytes
            assert more.bytes - less.bytes == 4 * 2 * scores
