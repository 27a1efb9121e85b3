from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from matplotlib.image import imread

EXAMPLE = Path(__file__).parents[2] / "examples" / "draw.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_query_learns_to_point_at_the_key_it_reads(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.random.fork_rng():
        example.main(["--json", "--out", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["example"], figures["seed"], figures["full"]) == ("draw", 0, False)
    assert figures["reads_right"] == 1
    assert figures["reads"]["red"] == "rouge"
    sharper = [figures[f"weight_at_length_{length}"] for length in (1, 2, 4, 8)]
    assert sharper == sorted(sharper)
    assert sharper[0] < 0.5
    assert sharper[-1] > 0.9
    height, width, _ = imread(tmp_path / "draw.png").shape
    assert (width, height) == (1560, 1080)
    assert [path.name for path in tmp_path.iterdir()] == ["draw.png"]


@pytest.mark.parametrize(
    "words", [["--seed", "one"], ["--seed", "-1"], ["--seed", str(2**63)], ["--out", str(EXAMPLE)]]
)
def test_bad_words_are_refused(example: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        example.main(words)
    assert stopped.value.code == 2
