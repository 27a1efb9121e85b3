from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

import caption


def test_caption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        caption.main(["--json", "--out", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["example"], figures["seed"], figures["full"]) == ("caption", 0, False)
    assert figures["words_right"] > 0.15  # chance is 0.1
    assert figures["words_grounded"] > 0.3  # chance is 0.17
    height, width, _ = imread(tmp_path / "caption.png").shape
    assert (width, height) == (1200, 672)
    assert [path.name for path in tmp_path.iterdir()] == ["caption.png"]


@pytest.mark.parametrize(
    "words", [["--seed", "one"], ["--seed", "-1"], ["--seed", str(2**63)], ["--out", __file__]]
)
def test_bad_words_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        caption.main(words)
    assert stopped.value.code == 2
