"""Run an example in its quick form, as its command line would."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.image import imread


@pytest.fixture
def quick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, tuple[int, int]], dict[str, Any]]:
    """Give the figures of an example that draws one picture of a size, and leaves nothing else."""

    def run(name: str, size: tuple[int, int]) -> dict[str, Any]:
        with torch.random.fork_rng():
            importlib.import_module(name).main(["--json", "--out", str(tmp_path)])
        figures = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (figures["example"], figures["seed"], figures["full"]) == (name, 0, False)
        height, width, _ = imread(tmp_path / f"{name}.png").shape
        assert (width, height) == size
        assert [path.name for path in tmp_path.iterdir()] == [f"{name}.png"]
        return figures

    return run
