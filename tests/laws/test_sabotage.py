"""Law 14. A law can fail: on each mutant, the law named beside it does, by its own assertion.

The mutant is a copy of the package with one text replaced; the test that failed on it passes on a
copy in which nothing is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import pytest

import crossattention
from laws import trial
from laws.mutants import MUTANTS, Mutant

PACKAGE = Path(crossattention.__file__).parent
LAWS = Path(__file__).parent
UNUSED = ignore_patterns("translate", "cli", "__pycache__")


def test_texts_match_exactly_once() -> None:
    wrong = [m.name for m in MUTANTS if (PACKAGE / m.file).read_text("utf-8").count(m.old) != 1]
    assert wrong == []
    assert all(mutant.old != mutant.new for mutant in MUTANTS)


def test_there_are_enough_and_every_law_has_one() -> None:
    assert len(MUTANTS) >= 30
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    written = {int(path.name[9:11]) for path in LAWS.glob("test_law_*.py")}
    assert {mutant.number for mutant in MUTANTS} == written == set(range(1, 14))


def copy(folder: Path, mutant: Mutant | None) -> Path:
    """Copy the package, by links but for the file that is changed."""
    package = copytree(PACKAGE, folder / "crossattention", copy_function=os.symlink, ignore=UNUSED)
    if mutant is not None:
        text = (PACKAGE / mutant.file).read_text("utf-8")
        (package / mutant.file).unlink()
        (package / mutant.file).write_text(text.replace(mutant.old, mutant.new), "utf-8")
    return folder


def named_by(mutant: Mutant) -> list[str]:
    """The tests whose names begin as the mutant's law says."""
    file, start = mutant.law.split("::")
    path = LAWS / f"test_law_{file}.py"
    names = [line[4 : line.index("(")] for line in path.read_text("utf-8").splitlines()
             if line.startswith(f"def {start}")]  # fmt: skip
    assert names, f"{mutant.name}: no test {mutant.law}"
    return [f"{path}::{name}" for name in names]


def run(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Run jobs in one program, which forks for each."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    command = [sys.executable, trial.__file__, str(folder / "jobs.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("LAWS", None)  # a mutant is caught by the cases of every day
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_mutant_is_caught_by_its_law(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = []
    for number, mutant in enumerate(MUTANTS):
        source = str(copy(tmp_path / str(number), mutant))
        jobs.append({"name": mutant.name, "source": source, "tests": named_by(mutant)})
    found = run(jobs, tmp_path)
    caught = [each for each in found if each.get("failed") and each["lawful"]]
    failed = {name for each in caught for name in each["failed"]}
    clean = str(copy(tmp_path / "clean", None))
    tests = sorted({test for job in jobs for test in job["tests"]})
    again = {"name": "none", "source": clean, "tests": tests, "only": sorted(failed)}
    (passing,) = run([again], tmp_path)
    with capsys.disabled():
        print()  # noqa: T201
        for mutant, each in zip(MUTANTS, found, strict=True):
            verdict = f"law {mutant.law}" if each in caught else f"SURVIVES {each.get('failed')}"
            why = each.get("why", "").splitlines()[:1]
            print(f"{mutant.name:<50} {verdict} {why}")  # noqa: T201
        print("caught by law:", dict(sorted(Counter(m.number for m in MUTANTS).items())))  # noqa: T201
    assert [each["name"] for each in found if each not in caught] == []
    assert passing["failed"] == [] and passing["lawful"], passing
    assert set(passing["passed"]) == failed
