"""A trained model and its tokenizer, ready to translate lines of text.

Lines are translated in batches of similar length and come back in their own order. A line of more
than `longest` tokens is cut into pieces first, by the rule of `pieces.cut`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from crossattention.errors import ContractError, complaint
from crossattention.seq2seq import EncoderDecoder
from crossattention.seq2seq.half import halve
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.seq2seq.options import BeamOptions
from crossattention.seq2seq.search import beam, greedy
from crossattention.translate.candidate import Candidate, join
from crossattention.translate.padding import by_length, padded
from crossattention.translate.pieces import cut
from crossattention.translate.tokenizer import END, Tokenizer
from crossattention.translate.translation import Translation

BUNDLED = Path(__file__).parent / "bundled"
FILES = ("config.json", "model.safetensors", "tokenizer.json")
# Sentences of the training pairs rarely have more words than fit here; longer ones are better cut.
LONGEST = 64
WEIGHTS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Translator:
    """Translate lines of text.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        checksum: SHA-256 of the file of pairs the model was trained on; None if it is not known.

    >>> from crossattention.seq2seq import Config
    >>> tokenizer = Tokenizer.train(["a cat"], vocabulary=262)
    >>> model = EncoderDecoder(Config(tokenizer.size, 8, 2, 16, 1, 1, max_length=32)).eval()
    >>> [each.text for each in Translator(model, tokenizer).translate(["", " "])]
    ['', '']
    """

    def __init__(
        self, model: EncoderDecoder, tokenizer: Tokenizer, checksum: str | None = None
    ) -> None:
        if model.config.vocabulary != tokenizer.size:
            given = f"{tokenizer.size} tokens for a model of {model.config.vocabulary}"
            raise ContractError(complaint("tokenizer", "the model's own", given, "load its own"))
        self.model, self.tokenizer, self.checksum = model, tokenizer, checksum
        self.longest = min(LONGEST, model.config.max_length)

    @classmethod
    def load(
        cls, directory: str | os.PathLike[str] | None = None, weights: str = "float32"
    ) -> Translator:
        """Load a model.

        Args:
            directory: as `crossattention train` leaves it; None: the bundled model.
            weights: "float32", or "bfloat16" or "float16" to hold them in half precision; see
                `halve`.
        Raises:
            ContractError: files are missing or broken, or weights cannot be held so.
        """
        check_weights(weights)
        folder = BUNDLED if directory is None else Path(directory)
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            given = f"{os.fspath(folder)!r} without {', '.join(missing)}"
            want, do = f"a directory with {', '.join(FILES)}", "name one that a training run left"
            raise ContractError(complaint("model", want, given, do))
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        model, dtype = EncoderDecoder.load(folder), WEIGHTS[weights]
        return cls(model if dtype is None else halve(model, dtype), tokenizer, _checksum(folder))

    def translate(
        self, lines: Sequence[str], *, beams: int = 4, nbest: int = 1, batch: int = 1024
    ) -> list[Translation]:
        """Translate lines, each on its own.

        Args:
            lines: source texts; white space around them does not count, and an empty line has an
                empty translation.
            beams: how many unfinished translations are kept at a time; 1 is greedy search.
            nbest: how many translations of a line are kept, at most `beams`.
            batch: most source tokens, padding included, that are translated at once.
        Returns:
            A translation for each line, in order; the next best are its `others`.
        Raises:
            ContractError: numbers that make no search.
        """
        options = BeamOptions(beams, nbest)
        pieces = [cut(line, self._size, self.longest) for line in lines]
        distinct = list(dict.fromkeys(piece for line in pieces for piece in line))
        encoded = [[*self.tokenizer.encode(piece), END] for piece in distinct]
        known: dict[str, list[Candidate]] = {}
        for part in by_length([len(source) for source in encoded], batch):
            found = self._search([encoded[at] for at in part], options)
            for at, hypotheses in zip(part, found, strict=True):
                known[distinct[at]] = [
                    Candidate.of(each, encoded[at], self.tokenizer) for each in hypotheses
                ]
        return [
            join(line, [known[piece] for piece in cuts], nbest)
            for line, cuts in zip(lines, pieces, strict=True)
        ]

    def _size(self, text: str) -> int:
        return len(self.tokenizer.encode(text)) + 1  # the end token

    def _search(
        self, sources: Sequence[Sequence[int]], options: BeamOptions
    ) -> list[list[Hypothesis]]:
        lengths = [len(source) for source in sources]
        tokens = padded(sources, self.model.embedding.tokens.weight.device)
        if options.beams == 1:
            return [[each] for each in greedy(self.model, tokens, lengths, align=True)]
        return beam(self.model, tokens, lengths, options, align=True)


def check_weights(weights: str) -> None:
    """Check the name of a dtype that weights can be held in.

    >>> check_weights("bfloat16")
    """
    if weights not in WEIGHTS:
        want, do = " or ".join(f'"{each}"' for each in WEIGHTS), "choose one of them"
        raise ContractError(complaint("weights", want, repr(weights), do))


def _checksum(folder: Path) -> str | None:
    """Read the checksum of the training pairs, where the model says it."""
    record = folder / "training.json"
    if not record.is_file():
        return None
    try:
        found = json.loads(record.read_text(encoding="utf-8"))["checksum"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        given = f"{os.fspath(record)!r} ({error})"
        do = "put back the one that the training run wrote"
        raise ContractError(complaint("training.json", "a run's record", given, do)) from error
    return str(found)
