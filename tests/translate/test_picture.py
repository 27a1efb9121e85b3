from __future__ import annotations

import pytest
from rich.cells import cell_len

from crossattention.translate.picture import draw
from crossattention.translate.translation import Translation

CAT = Translation(
    "The black cat.",
    "Le chat noir.",
    -0.1,
    source_words=("The", "black", "cat", "."),
    words=("Le", "chat", "noir", "."),
    alignment=(
        (0.90, 0.04, 0.02, 0.00, 0.04),
        (0.10, 0.10, 0.78, 0.00, 0.02),
        (0.10, 0.60, 0.30, 0.00, 0.00),
        (0.00, 0.00, 0.00, 0.97, 0.03),
    ),
)


def test_the_picture() -> None:
    assert draw(CAT).split("\n") == [
        "      The  black  cat  .   reads most",
        "Le    ███  ·      ·    ·   The 90%",
        "chat  ░░░  ░░░░░  ███  ·   cat 78%",
        "noir  ░░░  ▓▓▓▓▓  ▒▒▒  ·   black 60%",
        ".     ·    ·      ·    ██  . 97%",
    ]


def test_the_end_is_shown_where_it_matters_and_never_shared_out() -> None:
    assert "∅" not in draw(CAT)
    unread = Translation(
        "a", "b c", 0.0, source_words=("a",), words=("b", "c"), alignment=((0.3, 0.7), (1.0, 0.0))
    )
    assert draw(unread).split("\n") == [
        "   a   ∅   reads most",
        "b  ▒▒  ▓▓  ∅ 70%",
        "c  ██  ·   a 100%",
    ]


def test_wide_words_and_accents_stay_in_their_columns() -> None:
    found = Translation(
        "x",
        "y",
        0.0,
        source_words=("日本", "e\u0301te\u0301", "b"),
        words=("Ｗ", "ça"),
        alignment=((0.1, 0.8, 0.1, 0.0), (0.8, 0.1, 0.1, 0.0)),
    )
    lines = draw(found).split("\n")
    starts = [cell_len(line[: line.rindex("  ")]) for line in lines]
    assert len(set(starts)) == 1


@pytest.mark.parametrize("width", [1, 24, 30, 47, 80])
def test_a_narrow_terminal_gets_blocks_that_fit(width: int) -> None:
    words = tuple(f"{'anticonstitutionnellement'[: 3 + 2 * n]}{n}" for n in range(11))
    rows = tuple(
        tuple(0.5 if column in (row, 11) else 0.0 for column in range(12)) for row in range(11)
    )
    drawn = draw(Translation("x", "y", 0.0, source_words=words, words=words, alignment=rows), width)
    assert all(cell_len(line) <= max(width, 24) for line in drawn.split("\n"))
    assert drawn.count("▓") > 0 and drawn.count("∅") >= 1
    for block in drawn.split("\n\n"):
        assert len(block.split("\n")) == 12


def test_colour_marks_one_cell_a_row_and_changes_nothing_else() -> None:
    marked = draw(CAT, colour=True)
    assert marked.count("\x1b[1;36m") == marked.count("\x1b[0m") == 4
    assert "\x1b[1;36m▓▓▓▓▓\x1b[0m" in marked
    assert marked.replace("\x1b[1;36m", "").replace("\x1b[0m", "") == draw(CAT)


def test_what_moves_the_cursor_is_not_written() -> None:
    found = Translation(
        "x", "y", 0.0, source_words=("\x1b[2J",), words=("\t\n",), alignment=((1.0, 0.0),)
    )
    assert "\x1b" not in draw(found) and "\t" not in draw(found)
    assert len(draw(found).split("\n")) == 2


def test_nothing_draws_nothing() -> None:
    assert draw(Translation("", "", 0.0)) == ""
