"""Translate one batch, by this library or by CTranslate2, and say how long it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Protocol

import torch

from benchmarks.ctranslate2_model import convert, name
from benchmarks.ctranslate2_worker import Worker
from crossattention.seq2seq import BeamOptions, EncoderDecoder, beam, greedy

Batch = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Done:
    """What a batch came to.

    Attributes:
        written: token numbers of each sentence, without the end. seconds: of the whole batch.
    """

    written: list[list[int]]
    seconds: float

    @property
    def tokens(self) -> int:
        """Tokens that were written, ends included."""
        return sum(len(each) + 1 for each in self.written)


class Work(Protocol):
    """Whoever can translate a batch."""

    def translate(self, batch: Batch, beams: int) -> Done:
        """Translate sentences, token numbers closed by the end, with so many beams."""
        ...


@dataclass(frozen=True)
class Ours:
    """Translate with this library's search."""

    model: EncoderDecoder

    def translate(self, batch: Batch, beams: int, length: int | None = None) -> Done:
        """See `Work`; `length` is the most tokens, the end among them, None: the search's own."""
        start, most = perf_counter(), None if length is None else length - 1
        lengths = [len(source) for source in batch]
        tokens = torch.zeros(len(batch), max(lengths), dtype=torch.int64)
        for row, source in zip(tokens, batch, strict=True):
            row[: len(source)] = torch.tensor(source)
        if beams == 1:
            found = greedy(self.model, tokens, lengths, max_length=most)
        else:
            options = BeamOptions(beams=beams)
            written = beam(self.model, tokens, lengths, options, max_length=most)
            found = [best for best, *_ in written]
        return Done([list(each.tokens) for each in found], perf_counter() - start)


class Theirs:
    """Translate with CTranslate2, in a process of its own; the attribute `peak` is its memory's."""

    def __init__(self, model: EncoderDecoder, worker: Worker) -> None:
        self._model, self._worker = model, worker
        self.peak: int | None = None

    @classmethod
    def of(cls, model: EncoderDecoder, folder: Path, compute: str, threads: int) -> Theirs:
        """Convert a model into a folder, and start a process that holds it."""
        convert(model, folder / compute, compute)
        return cls(model, Worker(folder / compute, compute, threads))

    def translate(self, batch: Batch, beams: int) -> Done:
        """See `Work`."""
        words = [[name(token, self._model) for token in source] for source in batch]
        answer = self._worker.translate(words, beams)
        self.peak = max(self.peak or 0, answer["peak_bytes"] or 0) or None
        written = [[int(word) for word in found] for found in answer["words"]]
        return Done(written, answer["seconds"])

    def __enter__(self) -> Theirs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._worker.__exit__(kind, error, trace)
