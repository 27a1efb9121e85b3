from __future__ import annotations

from pathlib import Path

import pytest

from crossattention.errors import ContractError
from crossattention.translate import score_links as module
from crossattention.translate.score_links import error_rate, read_marked, score_links
from tiny import tiny_translator


def write(folder: Path, english: str, french: str, links: str) -> Path:
    for end, text in ((".e", english), (".f", french), (".wa.nonullalign", links)):
        (folder / f"set{end}").write_text(text, encoding="utf-8")
    return folder / "set"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    links = "0001 1 1 S\n0001 2 3 S\n0001 3 2 P\n0002 1 1 S\n"
    return write(tmp_path, "the black cat \noh !\n", "le chat noir \nô !\n", links)


def test_the_files_are_read(prefix: Path) -> None:
    first, second = read_marked(prefix)
    assert first.english == ["the", "black", "cat"] and first.french == ["le", "chat", "noir"]
    assert first.sure == {(0, 0), (1, 2)} and first.possible == {(0, 0), (1, 2), (2, 1)}
    assert second.sure == second.possible == {(0, 0)}


def test_the_rate_is_the_formula(prefix: Path) -> None:
    marked = read_marked(prefix)
    # |A| = 4, |S| = 3, |A ∩ S| = 2, |A ∩ P| = 3
    found = [frozenset({(0, 0), (2, 1), (1, 1)}), frozenset({(0, 0)})]
    assert error_rate(found, marked) == pytest.approx(1 - (2 + 3) / (4 + 3))
    assert error_rate([pair.possible for pair in marked], marked) == 0
    assert error_rate([frozenset(), frozenset()], marked) == 1


def test_a_word_that_reads_the_end_has_no_link(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "forced_links", lambda *_: [[0, 2, 1], [0, None]])
    assert score_links(tiny_translator(), read_marked(prefix)) == 0
    monkeypatch.setattr(module, "forced_links", lambda *_: [[0, 2, None], [None, 1]])
    # A = {(0,0), (2,1), (1,1) of the second}: |A ∩ S| = 1, |A ∩ P| = 2
    assert score_links(tiny_translator(), read_marked(prefix)) == pytest.approx(1 - 3 / 6)


def test_a_model_is_asked(prefix: Path) -> None:
    assert 0 <= score_links(tiny_translator(), read_marked(prefix)) <= 1


@pytest.mark.parametrize(
    ("english", "french", "links"),
    [
        ("a\nb\n", "x\n", "1 1 1 S\n"),
        ("a\n", "x\n", "1 2 1 S\n"),
        ("a\n", "x\n", "2 1 1 S\n"),
        ("a\n", "x\n", "1 0 1 S\n"),
        ("a\n", "x\n", "1 1 1 Q\n"),
        ("a\n", "x\n", "1 1 S\n"),
    ],
)
def test_files_that_do_not_belong_together(
    tmp_path: Path, english: str, french: str, links: str
) -> None:
    with pytest.raises(ContractError, match="`links` must be"):
        read_marked(write(tmp_path, english, french, links))


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"set\.e"):
        read_marked(tmp_path / "set")
    (write(tmp_path, "a\n", "x\n", "1 1 1 S\n").with_suffix(".f")).write_bytes(b"\xe9\n")
    with pytest.raises(ContractError, match="not UTF-8"):
        read_marked(tmp_path / "set")
