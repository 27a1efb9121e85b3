"""Run the command in this process, as a shell would: exit code, standard output, standard error."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from crossattention.cli import main
from tiny import save_tiny


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error as one line: where a paragraph is wrapped depends on the paths in it."""
        return " ".join(self.err.split())


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def command(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "argv", ["crossattention", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Result(code, *capsys.readouterr())

    return command


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"))
