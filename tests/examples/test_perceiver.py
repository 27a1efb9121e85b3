from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

import perceiver


def test_perceiver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        perceiver.main(["--json", "--out", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["example"], figures["seed"], figures["full"]) == ("perceiver", 0, False)
    assert figures["accuracy"] > 0.5  # chance is 0.1
    assert figures["accuracy_256_pixels"] > 0.5
    assert figures["accuracy_half_of_the_pixels"] > 0.3
    height, width, _ = imread(tmp_path / "perceiver.png").shape
    assert (width, height) == (1080, 1032)
    assert [path.name for path in tmp_path.iterdir()] == ["perceiver.png"]


@pytest.mark.parametrize(
    "words", [["--seed", "one"], ["--seed", "-1"], ["--seed", str(2**63)], ["--out", __file__]]
)
def test_bad_words_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        perceiver.main(words)
    assert stopped.value.code == 2
