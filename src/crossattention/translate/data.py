"""Read sentence pairs from a file, count what cannot be read, and say which file it was.

One pair a line, `English<TAB>French`, UTF-8, plain or gzip; columns after the second are ignored
(newer Tatoeba exports hold the attribution there). A bad line is reported with its number and
reason, never fatal.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from crossattention.errors import ContractError


@dataclass(frozen=True)
class BadLine:
    """One line that is no pair: its number (from 1) and why."""

    number: int
    reason: str


@dataclass(frozen=True)
class Pairs:
    """Sentence pairs of one file.

    Args:
        english: source sentences, without white space at the ends.
        french: target sentences, as many.
        bad: the lines that were left out.
        checksum: SHA-256 of the file's bytes as they lie on disk, in hexadecimal.
    """

    english: list[str]
    french: list[str]
    bad: list[BadLine]
    checksum: str

    def __len__(self) -> int:
        return len(self.english)

    def tuples(self) -> list[tuple[str, str]]:
        """Return the pairs as (English, French) tuples, in file order."""
        return list(zip(self.english, self.french, strict=True))


def read_pairs(path: str | os.PathLike[str]) -> Pairs:
    """Read a file of `English<TAB>French` lines; gzip is recognised by its first two bytes.

    Args:
        path: the file.

    Returns:
        Its pairs, bad lines and checksum.

    Raises:
        ContractError: the file is missing, unreadable, broken gzip, or holds no pair at all.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "pairs.tsv"
    >>> _ = path.write_text("Go.\\tVa !\\nalone\\n")
    >>> read_pairs(path).bad
    [BadLine(number=2, reason='one column')]
    """
    raw = _content(path)
    text = _unpacked(raw, path)
    english: list[str] = []
    french: list[str] = []
    bad: list[BadLine] = []
    # A byte order mark is no part of the first sentence.
    text = text.removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(text.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            pair = _pair(line)
        except ValueError as error:
            bad.append(BadLine(number, str(error)))
            continue
        english.append(pair[0])
        french.append(pair[1])
    if not english:
        shown = "; ".join(f"line {line.number}: {line.reason}" for line in bad[:3])
        raise ContractError(
            f"`path` must hold sentence pairs, got none in {os.fspath(path)!r} ({shown}); "
            "give one English<TAB>French pair a line."
        )
    return Pairs(english, french, bad, hashlib.sha256(raw).hexdigest())


def _content(path: str | os.PathLike[str]) -> bytes:
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ContractError(
            f"`path` must be a readable file, got {os.fspath(path)!r} ({error.strerror}); "
            "name a .tsv or .tsv.gz file of sentence pairs."
        ) from error
    if not raw:
        raise ContractError(
            f"`path` must hold sentence pairs, got an empty file {os.fspath(path)!r}; "
            "give one English<TAB>French pair a line."
        )
    return raw


def _unpacked(raw: bytes, path: str | os.PathLike[str]) -> bytes:
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise ContractError(
            f"`path` must be a whole gzip file, got {os.fspath(path)!r} ({error}); "
            "fetch or compress it again."
        ) from error


def _pair(line: bytes) -> tuple[str, str]:
    try:
        columns = line.removesuffix(b"\r").decode("utf-8").split("\t")
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    if len(columns) < 2:
        raise ValueError("one column" if line.strip() else "empty line")
    english, french = columns[0].strip(), columns[1].strip()
    if not english or not french:
        raise ValueError("empty side")
    return english, french
