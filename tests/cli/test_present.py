from __future__ import annotations

import json

import pytest

from crossattention.cli.present import Style
from crossattention.translate.translation import Translation

OTHER = Translation(
    "A cat", "Chat", -2.0, ("Chat",), (-2.0,), ("A", "cat"), ("Chat",), ((0, 1, 0),)
)
FOUND = Translation(
    "A cat",
    "Un\u2028chat\t\u00a0!",
    -0.123456,
    ("Un", " chat"),
    (-0.1, -0.2),
    ("A", "cat"),
    ("Un", "chat"),
    ((0.9, 0.05, 0.05), (0.123456, 0.876543, 0.000001)),
    (OTHER,),
)


def test_text_is_one_line_with_tabs_between_the_best() -> None:
    assert Style("text").write(FOUND) == "Un chat \u00a0!\tChat"


def test_json_holds_it_all() -> None:
    line = Style("json").write(FOUND)
    body = json.loads(line)
    assert "\n" not in line
    assert body["text"] == "A cat" and body["translation"] == "Un\u2028chat\t\u00a0!"
    assert body["tokens"] == ["Un", " chat"] and body["scores"] == [-0.1, -0.2]
    assert body["score"] == -0.1235 and body["words"] == ["Un", "chat"]
    assert body["source_words"] == ["A", "cat"]
    assert body["alignment"] == [[0.9, 0.05, 0.05], [0.1235, 0.8765, 0.0]]
    assert [other["translation"] for other in body["others"]] == ["Chat"]


def test_pictures_follow_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    drawn = Style("picture").write(FOUND)
    assert drawn.startswith("A cat\nUn chat")
    assert drawn.count("reads most") == 2 and "\x1b" not in drawn


@pytest.mark.parametrize(
    ("terminal", "variable", "colour"),
    [(True, None, True), (True, "NO_COLOR", False), (False, None, False)],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, variable: str | None, colour: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert ("\x1b" in Style("picture").write(FOUND)) is colour
