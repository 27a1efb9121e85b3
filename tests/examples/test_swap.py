from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from matplotlib.image import imread

EXAMPLE = Path(__file__).parents[2] / "examples" / "swap.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("swap_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_swapped_model_fails_and_the_laws_say_so(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.random.fork_rng():
        example.main(["--json", "--out", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["example"], figures["seed"], figures["full"]) == ("swap", 0, False)
    assert figures["accuracy_right"] > 0.99
    assert figures["accuracy_swapped"] < figures["best_with_one_letter"] + 0.02
    assert max(figures["broken_right"]) < 1e-4
    assert min(figures["broken_swapped"]) > 0.1
    height, width, _ = imread(tmp_path / "swap.png").shape
    assert (width, height) == (1440, 504)
    assert [path.name for path in tmp_path.iterdir()] == ["swap.png"]


@pytest.mark.parametrize(
    "words", [["--seed", "one"], ["--seed", "-1"], ["--seed", str(2**63)], ["--out", str(EXAMPLE)]]
)
def test_bad_words_are_refused(example: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        example.main(words)
    assert stopped.value.code == 2
