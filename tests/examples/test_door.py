"""Every example refuses bad words, before any work."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SHARED = ("compare", "digits", "door", "frozen")
FOLDER = Path(__file__).parents[2] / "examples"
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - set(SHARED))
WORDS = {
    "word": ["--seed", "one"],
    "negative": ["--seed", "-1"],
    "large": ["--seed", str(2**63)],
    "file": ["--out", __file__],
    "below a file": ["--out", f"{__file__}/below"],
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("name", NAMES)
def test_bad_words_are_refused(name: str, words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(name).main(words)
    assert stopped.value.code == 2


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short(name: str) -> None:
    assert len((FOLDER / f"{name}.py").read_text("utf-8").splitlines()) < 120
