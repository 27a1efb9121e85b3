from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread

import bridge


def test_bridge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with torch.random.fork_rng():
        bridge.main(["--json", "--out", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["example"], figures["seed"], figures["full"]) == ("bridge", 0, False)
    assert figures["weights_changed"] == 0
    assert figures["words_right_bridge"] > figures["words_right_image_shuffled"]
    height, width, _ = imread(tmp_path / "bridge.png").shape
    assert (width, height) == (1320, 480)
    assert [path.name for path in tmp_path.iterdir()] == ["bridge.png"]


@pytest.mark.parametrize(
    "words", [["--seed", "one"], ["--seed", "-1"], ["--seed", str(2**63)], ["--out", __file__]]
)
def test_bad_words_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bridge.main(words)
    assert stopped.value.code == 2
