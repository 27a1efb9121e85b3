import gzip
import hashlib

import pytest

from crossattention.errors import ContractError
from crossattention.translate.data import BadLine, read_pairs

GOOD = "Go.\tVa !\tsomeone (CC BY)\nHi.\tSalut\u202f!\n".encode()


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_reads_plain_and_gzip(tmp_path, pack) -> None:
    path = tmp_path / "pairs"
    path.write_bytes(pack(GOOD))
    pairs = read_pairs(path)
    assert pairs.tuples() == [("Go.", "Va !"), ("Hi.", "Salut\u202f!")]
    assert pairs.checksum == hashlib.sha256(path.read_bytes()).hexdigest()
    assert pairs.bad == []


def test_bad_lines_are_counted_with_reasons(tmp_path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"\xef\xbb\xbfa\tb\r\nalone\n\tx\n\xff\ty\n\nc\td")
    pairs = read_pairs(path)
    assert pairs.tuples() == [("a", "b"), ("c", "d")]
    assert pairs.bad == [
        BadLine(2, "one column"),
        BadLine(3, "empty side"),
        BadLine(4, "not UTF-8"),
        BadLine(5, "empty line"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"alone\n", "got none"),
        (gzip.compress(GOOD, mtime=0)[:-9], "whole gzip"),
    ],
)
def test_nothing_to_read_is_an_error(tmp_path, content, message) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(ContractError, match=message):
        read_pairs(path)


def test_missing_file(tmp_path) -> None:
    with pytest.raises(ContractError, match="readable file"):
        read_pairs(tmp_path / "none.tsv")
