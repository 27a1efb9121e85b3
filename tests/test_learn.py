"""The lesson is true: every block of every page prints exactly what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

LEARN = Path(__file__).parents[1] / "docs" / "learn"
PAGES = sorted(LEARN.glob("[0-9]-*.md"))
PIECE = re.compile(
    r"^```python\n(?P<seen>.*?)^```$|^<!-- python\n(?P<hidden>.*?)^-->$"
    r"|^```text\n(?P<shown>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
ENDING = re.compile(
    r"^## Three questions\n\n1\. .+^2\. .+^3\. .+^<!-- python\n.+^-->$\n\n"
    r"<details><summary>Answers</summary>\n\n^```text\n1\. .+\n2\. .+\n3\. .+\n```\n\n</details>$",
    re.MULTILINE | re.DOTALL,
)


def faults(page: Path) -> list[str]:
    """Run a page's blocks, hidden ones too, in one namespace; list where print and page differ."""
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {"__name__": "example"}
    found: list[str] = []
    printed = ""  # by the block before, and not yet shown
    for piece in PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 1
        shown = piece["shown"] or ""
        if printed != shown:
            found.append(f"{page.name}:{line} printed\n{printed}but shows\n{shown}")
        printed = ""
        if piece.lastgroup != "shown":
            printed = run(piece[str(piece.lastgroup)], line, page, namespace)
    return found + ([f"{page.name} ends without showing\n{printed}"] if printed else [])


def run(code: str, line: int, page: Path, namespace: dict[str, object]) -> str:
    """Execute one block; return what it printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        # The empty lines make a traceback name the line of the page.
        exec(compile("\n" * line + code, str(page), "exec"), namespace)
    return output.getvalue()


def test_there_are_six_pages_and_the_index_names_each() -> None:
    links = re.findall(r"^\d\. \[.+\]\((.+)\)", (LEARN / "README.md").read_text("utf-8"), re.M)
    assert links == [page.name for page in PAGES]
    assert len(links) == 6


@pytest.mark.parametrize("page", [LEARN / "README.md", *PAGES], ids=lambda page: page.name)
def test_the_page_prints_what_it_shows(page: Path) -> None:
    with torch.random.fork_rng():
        assert faults(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_ends_with_three_questions_answered_by_a_hidden_block(page: Path) -> None:
    assert len(ENDING.findall(page.read_text("utf-8"))) == 1


@pytest.mark.parametrize("page", [LEARN / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


SHOWN = "```text\n3\n```\n"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (f"```python\nprint(1 + 2)\n```\n\n{SHOWN}", True),
        (f"<!-- python\nprint(1 + 2)\n-->\n\n{SHOWN}", True),
        (f"```python\nx = 1\n```\n```python\nprint(x + 2)\n```\n{SHOWN}", True),
        (f"```python\nprint(4)\n```\n\n{SHOWN}", False),
        (f"<!-- python\nprint(4)\n-->\n\n{SHOWN}", False),
        (f"```python\nx = 3\n```\n\n{SHOWN}", False),
        (f"```python\nprint(3)\n```\n{SHOWN}{SHOWN}", False),
        ("```python\nprint(3)\n```\n", False),
        (f"```python\nprint(3)\n```\n```python\nprint(3)\n```\n{SHOWN}", False),
    ],
)
def test_a_page_that_shows_something_else_is_seen(text: str, right: bool, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    assert (faults(tmp_path / "page.md") == []) is right


def test_a_block_that_fails_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        faults(tmp_path / "page.md")
    assert failure.traceback[-1].lineno + 1 == 5
