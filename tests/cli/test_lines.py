from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path

import pytest

from crossattention.cli.lines import TextFile, arriving, decoded
from crossattention.errors import ContractError

TEXT = "\ufeffété\r\n\n\u2028one line\x0b\nlast"


def test_a_file_is_counted_and_read(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(TEXT.encode())
    found = TextFile.check(path)
    assert found.lines == 4
    assert found.checksum == hashlib.sha256(TEXT.encode()).hexdigest()
    assert list(found.chunks(3)) == [["été", "", "\u2028one line\x0b"], ["last"]]
    assert list(found.chunks(2, skip=3)) == [["last"]]
    assert list(found.chunks(2, skip=4)) == []


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"one\ntwo\nth\xe9e\n")
    with pytest.raises(ContractError, match="byte 0xe9 at byte 3 of line 3"):
        TextFile.check(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="No such file"):
        TextFile.check(tmp_path / "in.txt")
    with pytest.raises(ContractError, match="a regular file"):
        TextFile.check(tmp_path)


def test_lines_are_given_as_they_arrive() -> None:
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream:
        lines = arriving(stream)
        os.write(write, b"one\ntwo\nthr")
        assert next(lines) == ["one", "two"]
        os.write(write, "ée\nfour".encode())
        assert next(lines) == ["thrée"]
        os.close(write)
        assert next(lines) == ["four"]
        assert next(lines, None) is None


def test_a_letter_cut_by_a_block_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossattention.cli.lines.READ", 2)
    assert list(arriving(io.BytesIO("aé\nü".encode()))) == [["aé"], ["ü"]]
    with pytest.raises(ContractError, match="line 2"):
        list(arriving(io.BytesIO(b"a\n\xff\n")))


def test_only_the_first_line_loses_a_byte_order_mark() -> None:
    assert decoded(b"\xef\xbb\xbfa\n", 1, "x") == "a"
    assert decoded(b"\xef\xbb\xbfa\n", 2, "x") == "\ufeffa"
