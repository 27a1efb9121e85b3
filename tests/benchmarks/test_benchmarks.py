"""The benchmarks run, say what is missing, and time nothing whose results differ."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import adopt_models
from benchmarks.__main__ import APART, QUESTIONS
from benchmarks.ctranslate2_model import convert
from benchmarks.goals import GOALS, Goal
from benchmarks.report import figures
from benchmarks.run import Run
from benchmarks.same_tokens import compare_tokens
from benchmarks.side_by_side import Unequal, compare
from benchmarks.translating import Ours
from crossattention.seq2seq import Config, EncoderDecoder

ROOT = Path(__file__).parents[2]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_list_names_every_question() -> None:
    listed = run("--list")
    assert listed.returncode == 0
    assert tuple(line.split()[0] for line in listed.stdout.splitlines()) == (*QUESTIONS, *APART)


def test_a_question_is_answered_in_json(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    found = run("overhead", "memory", "--quick", "--threads", "1", "--json", str(path))
    assert found.returncode == 0, found.stderr
    body = json.loads(path.read_text())
    assert body["machine"]["threads"] == 1 and body["machine"]["versions"]["torch"]
    overhead = body["questions"]["overhead"]
    assert overhead["missing"] == [] and not overhead["interrupted"]
    row = overhead["rows"][0]
    assert row["milliseconds"].keys() == {"ours", "torch"}
    assert overhead["summary"]["attend_extra_microseconds"] == row["extra_microseconds"]
    assert body["questions"]["memory"]["summary"]["Whisper base_5_beams_copied_over_raw"] == 60
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("words", [["nothing"], [], ["grid", "--json", "no/such/folder.json"]])
def test_bad_words_end_with_two_and_no_traceback(words: list[str]) -> None:
    found = run(*words)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr and not found.stdout


def test_unequal_results_are_never_timed() -> None:
    calls = []

    def wrong() -> torch.Tensor:
        calls.append(1)
        return torch.tensor([1.0, 2.1])

    with pytest.raises(Unequal, match="ours and theirs differ"):
        compare({"ours": lambda: torch.tensor([1.0, 2.0]), "theirs": wrong}, 1.0)
    assert len(calls) == 1


def test_nan_is_not_equal() -> None:
    lanes = {"ours": lambda: torch.tensor([1.0]), "theirs": lambda: torch.tensor([torch.nan])}
    with pytest.raises(Unequal):
        compare(lanes, 0.0)


@pytest.mark.parametrize(
    ("value", "more", "less"),
    [(1.0, "below the floor", "goal"), (2.5, "floor", "floor"), (3.5, "goal", "below the floor")],
)
def test_a_figure_is_told_how_far_it_has_come(value: float, more: str, less: str) -> None:
    assert Goal("grid", "x", 2.0, 3.0).verdict(value) == more
    assert Goal("grid", "x", 3.0, 2.0, at_most=True).verdict(value) == less


def test_the_table_shows_what_is_below_its_floor() -> None:
    shown = figures({"loop": {"summary": {"30_steps": 9.0, "100_steps": None, "7_steps": 1.0}}})
    assert shown.splitlines()[2:] == [
        "| loop | 30 steps | 9 | ≥ 10 (15) | below the floor |",
        "| loop | 100 steps | - | ≥ 25 (40) |  |",
    ]


def test_goals_name_questions() -> None:
    assert {question for question, _ in GOALS} < {*QUESTIONS, *APART}


def test_a_missing_peer_is_named() -> None:
    asked = Run()
    assert asked.peer("no_such_peer.part") is None
    assert asked.missing == ["no_such_peer: No module named 'no_such_peer'"]


def tiny(seed: int) -> EncoderDecoder:
    torch.manual_seed(seed)
    return EncoderDecoder(Config(vocabulary=37, width=16, heads=2, feed_forward=24)).eval()


@pytest.mark.parametrize("beams", [1, 4])
def test_other_weights_are_caught_whichever_model_likes_its_sentences(beams: int) -> None:
    batch = [[5 + row, 7, 11, 2] for row in range(7)]
    counts = compare_tokens(Ours(tiny(0)), Ours(tiny(0)), [batch], beams)
    assert (counts["equal"], counts["equal_or_tied"]) == (7, 1)
    with pytest.raises(Unequal):
        compare_tokens(Ours(tiny(0)), Ours(tiny(1)), [batch], beams)


@pytest.mark.parametrize("quantization", ["float32", "int8"])
def test_converting_leaves_our_weights_alone(tmp_path: Path, quantization: str) -> None:
    pytest.importorskip("ctranslate2")
    model = tiny(0)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    convert(model, tmp_path / "converted", quantization)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_real_weights_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise SystemExit("weights are not installed")

    adopt_models._real.cache_clear()
    monkeypatch.setitem(sys.modules, "real_whisper", SimpleNamespace(load=load))
    monkeypatch.setenv(adopt_models.SPEECH, "heard.wav")
    asked = Run()
    names = [shape.name for shape in adopt_models.shapes(asked)]
    assert names[0] == "Whisper base, random"
    assert asked.missing == ["real_whisper: weights are not installed"]
