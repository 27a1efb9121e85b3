from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from matplotlib.image import imread

EXAMPLE = Path(__file__).parents[2] / "examples" / "retrieve.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("retrieve_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_learns_to_read_the_right_fact(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with torch.random.fork_rng():
        example.main(["--json", "--out", str(tmp_path)])
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (figures["example"], figures["seed"], figures["full"]) == ("retrieve", 0, False)
    assert figures["facts"] > 3000
    assert figures["exact_match"] > 0.9
    assert figures["points_at_it"] > 0.9
    assert figures["growth_of_multiply_adds"] == pytest.approx(1, abs=0.05)
    assert figures["growth_of_milliseconds"] < 2  # far from quadratic, whatever else runs
    height, width, _ = imread(tmp_path / "retrieve.png").shape
    assert (width, height) == (1560, 480)
    assert [path.name for path in tmp_path.iterdir()] == ["retrieve.png"]


def test_facts_asked_for_stand_in_their_memory(example: ModuleType) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        people = torch.randperm(12 * 26 * 11)[:97]
        facts, lengths, asked = example.gather(people, 3, 13, 7)
    assert facts.shape == (3, 78, 5)
    assert asked.shape == (21, 5)
    for at, fact in enumerate(asked):
        told = facts[at // 7, : lengths[at // 7]]
        assert (told == fact).all(1).sum() == 1
        assert (told[:, :4] == fact[:4]).all(1).sum() == 1  # one answer only
        first, initial, last = (fact[:3] - torch.tensor([0, 12, 38])).tolist()
        assert first * 286 + initial * 11 + last in people


@pytest.mark.parametrize(
    "words", [["--seed", "one"], ["--seed", "-1"], ["--seed", str(2**63)], ["--out", str(EXAMPLE)]]
)
def test_bad_words_are_refused(example: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        example.main(words)
    assert stopped.value.code == 2
