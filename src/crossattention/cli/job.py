"""Translate a file into a file, so that an interrupted run loses little and leaves no half file.

Translations grow in `OUTPUT.partial`, beside a record of what is being done; at the end that file
takes the output's name. A resumed run checks the record, drops a last line that was cut short, and
goes on with the line after.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossattention.cli.lines import TextFile
from crossattention.errors import ContractError, complaint

CHUNK = 256  # lines that a killed run loses at most


@dataclass(frozen=True)
class Job:
    """What is translated, where to, and the settings that a resumed run must share."""

    source: TextFile
    output: Path
    settings: dict[str, Any]

    @property
    def partial(self) -> Path:
        """Where translations grow."""
        return self.output.with_name(self.output.name + ".partial")

    @property
    def record(self) -> Path:
        """Where the settings stand while they do."""
        return self.output.with_name(self.output.name + ".partial.json")

    def begin(self, resume: bool) -> int:
        """Make the partial file ready, and count the lines that it holds already.

        Raises:
            ContractError: another run, or an unfinished one that is not to be resumed, is there.
        """
        now = {"input": self.source.checksum, **self.settings}
        if not self.partial.exists():
            _write(self.record, json.dumps(now, indent=2) + "\n")
            self.partial.touch()
            return 0
        if not resume:
            do = f"pass --resume to go on, or delete {self.partial}"
            given = f"{str(self.output)!r}, which an unfinished run is writing"
            raise ContractError(complaint("--output", "free", given, do))
        before = json.loads(self.record.read_text("utf-8")) if self.record.exists() else {}
        other = sorted(key for key in now if before.get(key) != now[key])
        if other:
            do = f"use the settings that the run began with, or delete {self.partial}"
            given = f"another {', another '.join(other)}"
            raise ContractError(complaint("--resume", "the same run", given, do))
        return _whole_lines(self.partial)

    def run(self, done: int, write: Callable[[list[str]], list[str]]) -> None:
        """Translate what is left, show progress, and give the output its name.

        Args:
            done: lines that are there already.
            write: turns lines into the lines to write.
        """
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        try:
            with (
                Progress(*columns, console=console, disable=not console.is_terminal) as bar,
                self.partial.open("ab") as file,
            ):
                task = bar.add_task("translating", total=self.source.lines, completed=done)
                for chunk in self.source.chunks(CHUNK, done):
                    file.write("".join(f"{line}\n" for line in write(chunk)).encode())
                    file.flush()
                    done += len(chunk)
                    bar.update(task, completed=done)
                os.fsync(file.fileno())
        except KeyboardInterrupt:
            kept = f"{done} of {self.source.lines} lines are in {self.partial}"
            print(f"interrupted: {kept}; --resume goes on from there.", file=sys.stderr)
            raise
        os.replace(self.partial, self.output)
        self.record.unlink(missing_ok=True)


def fingerprint(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole_lines(path: Path) -> int:
    """Drop a last line without an end, and count the others."""
    lines = end = 0
    with path.open("r+b") as file:
        for line in file:
            if line.endswith(b"\n"):
                lines, end = lines + 1, end + len(line)
        file.truncate(end)
    return lines


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
