from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossattention.kernels.native.library import absent, best
from crossattention.translate.split import split_pairs
from tiny import save_tiny

KEYS = {"bleu", "bleu_single", "chrf", "signature", "sentences", "sentences_per_second"}


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tsv"
    lines = [f"cat {number // 2}\tchat {number}\n" for number in range(400)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def write_links(folder: Path) -> None:
    for end, text in ((".e", "the cat\n"), (".f", "le chat\n"), (".wa.nonullalign", "1 2 2 S\n")):
        (folder / f"set{end}").write_text(text)


def test_the_shipped_pairs_are_judged_by_default(run: Callable, model: Path) -> None:
    shown = run("evaluate", "--model", model, "--json", "--beams", 1, "--limit", 7)
    body = json.loads(shown.out)
    assert shown.code == 0 and shown.out.count("\n") == 1
    assert set(body) == KEYS | {"adjective_noun", "adjective_noun_pairs"}
    assert body["sentences"] == 7 and body["adjective_noun_pairs"] == 20
    assert 0 <= body["bleu"] <= 100 and 0 <= body["chrf"] <= 100


def test_a_file_has_exactly_the_keys(run: Callable, model: Path, pairs: Path) -> None:
    shown = run("evaluate", "--model", model, "--pairs", pairs, "--json", "--beams", 1)
    body = json.loads(shown.out)
    assert set(body) == KEYS and body["sentences"] == 200


def test_the_training_file_is_judged_on_its_held_out_part(
    run: Callable, tmp_path: Path, pairs: Path
) -> None:
    own = save_tiny(tmp_path / "own", hashlib.sha256(pairs.read_bytes()).hexdigest())
    shown = run("evaluate", "--model", own, "--pairs", pairs, "--json", "--beams", 1)
    rows = [tuple(line.split("\t")) for line in pairs.read_text().splitlines()]
    held = {english for english, _ in split_pairs([(row[0], row[1]) for row in rows]).held_out}
    assert 0 < json.loads(shown.out)["sentences"] == len(held) < 30


@pytest.mark.skipif(absent() != "" or best() == "portable", reason="halved for the native kernel")
def test_weights_in_the_precision_they_were_stored_in_are_worth_as_much(
    run: Callable, pairs: Path, tmp_path: Path
) -> None:
    """The bundled model lies in float16, and known translations are read with such weights too."""
    write_links(tmp_path)
    options = ("evaluate", "--pairs", pairs, "--limit", 2, "--json", "--links", tmp_path / "set")
    bodies = [json.loads(run(*options, "--weights", w).out) for w in ("float32", "float16")]
    assert [body.pop("sentences_per_second") > 0 for body in bodies] == [True, True]
    assert bodies[0] == bodies[1]


def test_links_add_the_error_rate(run: Callable, model: Path, pairs: Path, tmp_path: Path) -> None:
    write_links(tmp_path)
    shown = run(
        "evaluate", "--model", model, "--pairs", pairs, "--limit", 2, "--json",
        "--links", tmp_path / "set",
    )  # fmt: skip
    body = json.loads(shown.out)
    assert set(body) == KEYS | {"alignment_error_rate"}
    assert 0 <= body["alignment_error_rate"] <= 1


def test_without_json_there_are_lines(run: Callable, model: Path, pairs: Path) -> None:
    shown = run("evaluate", "--model", model, "--pairs", pairs, "--limit", 1)
    assert {line.split()[0] for line in shown.out.splitlines()} == KEYS


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pairs", "nowhere.tsv"),
        ("--links", "nowhere"),
        ("--limit", 0),
        ("--beams", 0),
        ("--model", "nowhere"),
    ],
)
def test_bad_input_is_one_paragraph(
    run: Callable, model: Path, arguments: tuple[object, ...]
) -> None:
    given = arguments if "--model" in arguments else (*arguments, "--model", model)
    shown = run("evaluate", *given)
    assert shown.code == 2 and shown.out == "" and "must be" in shown.said
    assert "Traceback" not in shown.err
