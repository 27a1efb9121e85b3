"""Read lines of UTF-8 text from a file, twice if need be, or from a stream as they arrive.

Only a line feed ends a line (a carriage return before it is dropped), so line numbers are those of
`wc` and of editors, whatever else the text holds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from crossattention.errors import ContractError, complaint

READ = 1 << 16


@dataclass(frozen=True)
class TextFile:
    """A file that was read once from end to end: it holds UTF-8, `lines` of it."""

    path: Path
    lines: int
    checksum: str

    @classmethod
    def check(cls, path: Path) -> TextFile:
        """Read a file to its end.

        Raises:
            ContractError: it cannot be read, or a line is not UTF-8, with its number.
        """
        if path.exists() and not path.is_file():
            do = "name a file, or write into standard input"
            raise ContractError(complaint("--input", "a regular file", repr(str(path)), do))
        digest, number = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    decoded(line, number, "--input")
                    digest.update(line)
        except OSError as error:
            given = f"{os.fspath(path)!r} ({error.strerror})"
            raise ContractError(
                complaint("--input", "a readable file", given, "name another")
            ) from error
        return cls(path, number, digest.hexdigest())

    def chunks(self, size: int, skip: int = 0) -> Iterator[list[str]]:
        """Yield lines in groups of at most `size`, from line `skip` + 1 on."""
        with self.path.open("rb") as file:
            lines = (decoded(line, number, "--input") for number, line in enumerate(file, 1))
            rest = islice(lines, skip, None)
            while chunk := list(islice(rest, size)):
                yield chunk


def arriving(stream: BinaryIO) -> Iterator[list[str]]:
    """Yield the whole lines that have arrived, as soon as there are any.

    Raises:
        ContractError: a line is not UTF-8, with its number; lines before it have been yielded.
    """
    # A buffered reader returns what one system call gives: a line from a person, many from a pipe.
    read = getattr(stream, "read1", stream.read)
    rest, number = b"", 0
    while block := read(READ):
        *whole, rest = (rest + block).split(b"\n")
        lines = [decoded(line, number + at, "standard input") for at, line in enumerate(whole, 1)]
        number += len(whole)
        if lines:
            yield lines
    if rest:
        yield [decoded(rest, number + 1, "standard input")]


def decoded(line: bytes, number: int, name: str) -> str:
    """Decode one line, without its end.

    >>> decoded(b"caf\\xc3\\xa9\\r\\n", 1, "--input")
    'café'
    """
    try:
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        given = f"byte 0x{line[error.start]:02x} at byte {error.start + 1} of line {number}"
        do = "convert it, with iconv -f latin1 -t utf-8, say"
        raise ContractError(complaint(name, "UTF-8 text", given, do)) from error
    return text.removeprefix("\ufeff") if number == 1 else text
