"""Turn text into sub-word tokens and back, exactly.

Byte-pair encoding over bytes (Sennrich et al. 2016; Radford et al. 2019): every text is a sequence
of bytes, so nothing is unknown and `decode(encode(text)) == text`. No token crosses a border
between words, punctuation and apostrophes, so positions of sub-words and of words translate into
each other exactly.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from crossattention.errors import ContractError

PAD, BEGIN, END = 0, 1, 2
_SPECIALS = 3
# One word with the single white-space character before it. An apostrophe closes a French elision
# (l' | homme) and opens an English ending (it | 's); a repeated mark is one word.
_ENDING = r"['’](?:s|t|re|ve|m|ll|d)(?!\p{L})"
_LETTERS = r"\s?\p{L}[\p{L}\p{M}]*(?:(?!" + _ENDING + r")['’](?=\p{L}))?"
_BORDERS = rf"{_ENDING}|{_LETTERS}|\s?\p{{N}}+|\s?([^\s\p{{L}}\p{{N}}])\1*|\s+(?!\S)|\s"


class Tokenizer:
    """Encode text as token ids; 0 pads, 1 begins, 2 ends a sequence, and text never yields these
    three.

    Args:
        bpe: a `tokenizers.Tokenizer` with a byte-level model; its ids are shifted by three.

    >>> tokenizer = Tokenizer.train(["the cat", "l'homme, the cat"], vocabulary=270)
    >>> tokenizer.decode(tokenizer.encode(" the 🐈\\n")) == " the 🐈\\n"
    True
    >>> [word for word, _ in tokenizer.words(tokenizer.encode("l'homme, it's"))]
    ["l'", 'homme', ',', 'it', "'s"]
    """

    def __init__(self, bpe: Any) -> None:
        self._bpe = bpe
        letter_to_byte = {letter: byte for byte, letter in _byte_alphabet().items()}
        self._bytes = [b""] * self.size
        for token, index in bpe.get_vocab(with_added_tokens=False).items():
            self._bytes[index + _SPECIALS] = bytes(letter_to_byte[letter] for letter in token)

    @classmethod
    def train(cls, lines: Iterable[str], vocabulary: int) -> Tokenizer:
        """Learn `vocabulary` tokens (three specials and 256 bytes included) from lines of text."""
        from tokenizers import Tokenizer as Bpe
        from tokenizers import models, pre_tokenizers, trainers

        if vocabulary < _SPECIALS + 256:
            raise ContractError(
                f"`vocabulary` must be at least {_SPECIALS + 256}, got {vocabulary}; "
                "count three special tokens and 256 bytes."
            )
        bpe = Bpe(models.BPE())
        bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        bpe.pre_tokenizer = pre_tokenizers.Sequence([_splitter(), bytes_only])
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary - _SPECIALS,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[],
            show_progress=False,
        )
        bpe.train_from_iterator(lines, trainer)
        return cls(bpe)

    @property
    def size(self) -> int:
        """Count the ids: the three specials and every learned token."""
        return int(self._bpe.get_vocab_size()) + _SPECIALS

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without begin and end."""
        return self.encode_words([text])[0][0]

    def encode_words(self, texts: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """Return each text's token ids and, for each token, its word's index in `word_split`.

        Raises:
            ContractError: a text holds a lone surrogate, which no UTF-8 text can.
        """
        for text in texts:
            _check_unicode(text)
        encodings = self._bpe.encode_batch(list(texts), add_special_tokens=False)
        return [([i + _SPECIALS for i in e.ids], list(e.word_ids)) for e in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, without specials; broken bytes show as U+FFFD."""
        return self._join(ids).decode("utf-8", errors="replace")

    def words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        """Group token positions into words: `[(word, [position, ...]), ...]`, specials left out.

        For ids made by `encode` the words are `word_split(text)`. A token that a model placed
        across a border joins the words it touches.
        """
        owners: list[int] = []  # for each byte, the position of its token
        for position, index in enumerate(ids):
            owners.extend([position] * len(self._bytes[self._checked(index)]))
        # A broken byte becomes one stand-in character of one byte, so that offsets stay true.
        loose = self._join(ids).decode("utf-8", errors="surrogateescape")
        text = re.sub("[\udc80-\udcff]", "\x1a", loose)
        groups: list[tuple[str, list[int]]] = []
        start = 0
        for piece in _pieces(text):
            stop = start + len(piece.encode("utf-8"))
            positions = sorted(set(owners[start:stop]))
            if groups and groups[-1][1][-1] in positions:
                positions = sorted({*groups[-1][1], *positions})
                piece = groups.pop()[0] + piece
            groups.append((piece, positions))
            start = stop
        broken = text != loose
        return [(_shown(p).replace("\x1a", "�") if broken else _shown(p), at) for p, at in groups]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tokenizer as one JSON file, replacing `path` in one step."""
        body = {"pad": PAD, "begin": BEGIN, "end": END, "bpe": json.loads(self._bpe.to_str())}
        temporary = Path(f"{os.fspath(path)}.tmp")
        temporary.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Read a tokenizer that `save` wrote."""
        from tokenizers import Tokenizer as Bpe

        try:
            body = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(Bpe.from_str(json.dumps(body["bpe"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ContractError(
                f"`path` must be a tokenizer file, got {os.fspath(path)!r} ({error}); "
                "name a file written by Tokenizer.save."
            ) from error

    def _join(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._bytes[self._checked(index)] for index in ids)

    def _checked(self, index: int) -> int:
        if not 0 <= index < len(self._bytes):
            raise ContractError(
                f"`ids` must lie in 0..{len(self._bytes) - 1}, got {index}; "
                "decode with the tokenizer of the model."
            )
        return index


def word_split(text: str) -> list[str]:
    """Split a text into words, numbers and marks, without the white space around them.

    >>> word_split("L'homme n'a pas 30 ans, it's true...")
    ["L'", 'homme', "n'", 'a', 'pas', '30', 'ans', ',', 'it', "'s", 'true', '...']
    """
    _check_unicode(text)
    return [_shown(piece) for piece in _pieces(text)]


def _pieces(text: str) -> list[str]:
    return [piece for piece, _ in _splitter().pre_tokenize_str(text)]


def _shown(piece: str) -> str:
    return piece.strip() or piece


@functools.cache  # building the expression costs more than splitting a line
def _splitter() -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Split(Regex(_BORDERS), behavior="isolated")


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ContractError(
            f"`text` must be valid Unicode, got a lone surrogate in {text!r:.80}; "
            "decode the bytes with errors='replace'."
        ) from error


def _byte_alphabet() -> dict[int, str]:
    """Name each byte by a printable letter, as byte-level vocabularies do."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in printable}
    hidden = [byte for byte in range(256) if byte not in names]
    return names | {byte: chr(256 + order) for order, byte in enumerate(hidden)}
