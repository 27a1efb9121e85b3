"""Measure: `python -m benchmarks NAME… [--json FILE] [--quick] [--threads N]`, or `--list`.

Each question is a module with `rows(run)`, which yields one row after the other, and
`summary(rows)`, the figures that are quoted. Each is asked in a process of its own, so that neither
times nor peaks hang on what was asked before. Ctrl-C keeps the rows that were measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.ask import ask_apart, module
from benchmarks.report import figures, table, write_json
from benchmarks.run import Run, machine

QUESTIONS = (
    "overhead",
    "memory",
    "grid",
    "pool",
    "resample",
    "choice",
    "loop",
    "translate",
    "train",
)
APART = ("adopt",)  # takes as long as all the others together, so "all" leaves it out
EVERY = (*QUESTIONS, *APART)
INTERRUPTED = 130


def main(words: list[str] | None = None) -> int:
    """Answer the questions that are named; return the exit code."""
    asked = _parse(words)
    if asked.list:
        for name in EVERY:
            print(f"{name:<10} {module(name).__doc__.splitlines()[0]}")
        return 0
    about = machine(asked.threads) | {"quick": asked.quick}
    print(table([{"": key, " ": str(value)} for key, value in about.items()]), file=sys.stderr)
    names = QUESTIONS if "all" in asked.names else tuple(dict.fromkeys(asked.names))
    answers: dict[str, dict[str, object]] = {}
    for name in names:
        answer = ask_apart(name, Run(asked.quick, asked.threads, asked.equality))
        answers[name] = answer
        _show(name, answer)
        if asked.json:
            write_json(asked.json, {"machine": about, "questions": answers})
        if answer["interrupted"]:
            return INTERRUPTED
    print(f"\n{figures(answers)}")
    return 1 if any(answer["failed"] for answer in answers.values()) else 0


def _parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, {', '.join(EVERY)}")
    parser.add_argument("--list", action="store_true", help="say what each question is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write summaries and rows there")
    parser.add_argument("--quick", action="store_true", help="few rows, shortly: not to quote")
    parser.add_argument(
        "--equality", action="store_true", help="adopt: compare tokens of every family instead"
    )
    parser.add_argument("--threads", type=int, default=2, help="of torch and of every peer")
    asked = parser.parse_args(words)
    unknown = [name for name in asked.names if name not in (*EVERY, "all")]
    if unknown:
        parser.error(f"no question {unknown[0]!r}; choose from all, {', '.join(EVERY)}")
    if not asked.names and not asked.list:
        parser.error("name a question, or all, or pass --list")
    if asked.equality and asked.names != ["adopt"]:
        parser.error("--equality goes with `adopt` alone")
    if asked.threads < 1:
        parser.error("--threads must be at least 1")
    if asked.json and (asked.json.is_dir() or not asked.json.resolve().parent.is_dir()):
        parser.error(f"--json must name a file in a folder that exists, got {asked.json}")
    return asked


def _show(name: str, answer: dict[str, object]) -> None:
    print(f"\n{name}: {module(name).__doc__.splitlines()[0]}")
    if answer["rows"]:
        print(table(answer["rows"]))  # type: ignore[arg-type]
    for missing in answer["missing"]:  # type: ignore[attr-defined]
        print(f"missing: {missing}")
    if answer["failed"]:
        print(f"STOPPED, results differ: {answer['failed']}")
    if answer["interrupted"]:
        print("interrupted: the rows above were measured before")


if __name__ == "__main__":
    sys.exit(main())
