from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crossattention.kernels.costs import SHIPPED, Table

SHAPE = ("--queries", 1, "--memory", 1500, "--width", 512, "--heads", 8)


def test_json_is_the_card(run: Callable) -> None:
    shown = run("explain", *SHAPE, "--beams", 5, "--layers", 6, "--dtype", "bfloat16", "--json")
    body = json.loads(shown.out)
    assert (body["life"], body["chosen"], body["flips_at"]) == (5, "raw", 30)
    projected, raw = body["forms"]
    assert projected["bytes"] == 2 * 6 * 1500 * 512 * 2 and raw["bytes"] == 1500 * 512 * 2
    assert {each["name"] for each in raw["kernels"]["kernels"]} == {
        "reference", "matmul", "fused", "native",
    }  # fmt: skip
    longer = json.loads(run("explain", *SHAPE, "--life", 70, "--json").out)
    assert longer["chosen"] == "projected"


def test_the_card_is_readable(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = run("explain", *SHAPE)
    assert shown.code == 0 and shown.out.count("chosen") == 3
    assert "raw takes less work up to 35 query rows" in shown.out and "matmul" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*SHAPE, "--dtype", "int8"), "--dtype"),
        ((*SHAPE, "--beams", 0), "beams"),
        ((*SHAPE[:-1], 7), "width"),
        ((*SHAPE, "--life", 1, "--beams", 2), "life"),
    ],
)
def test_bad_input_is_one_paragraph(
    run: Callable, arguments: tuple[object, ...], said: str
) -> None:
    shown = run("explain", *arguments)
    assert shown.code == 2 and f"`{said}` must be" in shown.said and shown.out == ""


def test_the_table_that_speaks_is_named(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert f"table: {SHIPPED.name}" in run("explain", *SHAPE).out
    known = {
        dtype: {"reference": rates["matmul"], "matmul": replace(rates["matmul"], overhead=1.0)}
        for dtype, rates in SHIPPED.rates.items()
    }
    Table("mine", known).write(tmp_path / "mine.json")
    shown = run("explain", *SHAPE, "--table", tmp_path / "mine.json")
    assert shown.code == 0 and "table: mine.json" in shown.out
    body = json.loads(run("explain", *SHAPE, "--table", tmp_path / "mine.json", "--json").out)
    for form in body["forms"]:
        assert (form["kernels"]["chosen"], form["kernels"]["table"]) == ("reference", "mine.json")
        seconds = {each["name"]: each["seconds"] for each in form["kernels"]["kernels"]}
        assert seconds["fused"] is None and seconds["matmul"] > seconds["reference"]


def test_what_is_no_table_is_said(run: Callable, tmp_path: Path) -> None:
    shown = run("explain", *SHAPE, "--table", tmp_path / "absent.json")
    assert shown.code == 2 and "`table` must be" in shown.said and shown.out == ""
