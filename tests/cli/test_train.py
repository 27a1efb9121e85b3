from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from crossattention.cli.train import train
from crossattention.translate.options import Progress, TrainOptions
from crossattention.translate.train import Outcome


def test_the_command_has_every_option_with_its_default() -> None:
    fields = {field.name: field for field in dataclasses.fields(TrainOptions)}
    parameters = inspect.signature(train).parameters
    assert set(parameters) == set(fields)
    for name, field in fields.items():
        if field.default is not dataclasses.MISSING:
            assert parameters[name].default == field.default, name


def test_options_arrive_and_progress_is_shown(
    run: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def fake(options: TrainOptions, report: Callable[[Progress], None]) -> Outcome:
        seen.append(options)
        report(Progress("read", 1.0, message="9 pairs, 1 bad lines left out (line 3: one column)"))
        report(Progress("train", 0.5, 10, 0, 2.5, 1000.0, 61.0))
        report(Progress("judge", 1.0, 10, 0, bleu=12.5))
        return Outcome(12.5, 10, True)

    monkeypatch.setattr("crossattention.translate.train.train", fake)
    shown = run("train", "pairs.tsv", "--out", "run", "--epochs", 3, "--peak", 0.002, "--resume")
    options = TrainOptions("pairs.tsv", "run", epochs=3, peak=0.002, resume=True)
    assert shown.code == 0 and seen == [options]
    assert "line 3: one column" in shown.said and "1,000 tokens/s 0:01:01 left" in shown.said
    assert "held-out BLEU 12.50 after 10 steps, stopped early" in shown.out


def test_an_interrupt_says_how_to_go_on(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(options: TrainOptions, report: Callable[[Progress], None]) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr("crossattention.translate.train.train", fake)
    shown = run("train", "pairs.tsv", "--out", "run")
    assert shown.code == 130 and "--resume" in shown.said


@pytest.mark.parametrize(
    ("content", "said"), [(None, "nowhere.tsv"), (b"", "an empty file"), (b"alone\n", "one column")]
)
def test_a_file_without_pairs_is_a_clear_error(
    run: Callable, tmp_path: Path, content: bytes | None, said: str
) -> None:
    path = tmp_path / "nowhere.tsv"
    if content is not None:
        path.write_bytes(content)
    shown = run("train", path, "--out", tmp_path / "run")
    assert shown.code == 2 and said in shown.said and not (tmp_path / "run").exists()


def test_an_option_out_of_range_is_a_clear_error(run: Callable, tmp_path: Path) -> None:
    shown = run("train", "pairs.tsv", "--out", tmp_path / "run", "--epochs", 0)
    assert shown.code == 2 and "`epochs` must be" in shown.said
