"""CTranslate2 in a process of its own: it brings its own threads, which must not meet torch's.

The process reads requests, one JSON object a line, and answers each with one: the parent sends a
batch, waits, and so the two take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, cast

from benchmarks.run import peak_bytes


class Worker:
    """Start a process for one converted model; leave the `with` block to end it.

    Args:
        folder: from `ctranslate2_model.convert`, or another converted model.
        compute: "float32" or "int8". threads: of its pool.
        kind: "Translator" or "Whisper".
    """

    def __init__(self, folder: Path, compute: str, threads: int, kind: str = "Translator") -> None:
        words = [sys.executable, "-m", "benchmarks.ctranslate2_worker", kind, str(folder), compute]
        root = str(Path(__file__).parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [*words, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip

    def translate(
        self, batch: Sequence[Sequence[str]], beams: int, tokens: int | None = None
    ) -> dict[str, Any]:
        """Translate one batch: {"seconds", "words" of each sentence, "peak_bytes", "above_bytes"}.

        Args:
            tokens: so many are written for each sentence, whatever they are; None: to their ends.
        """
        return self._ask({"batch": batch, "beams": beams, "tokens": tokens})

    def hear(
        self, rows: Path, prompt: list[int], beams: int, tokens: int, unwanted: list[int]
    ) -> dict[str, Any]:
        """Go on from a prompt over an encoder's output; the answer is `translate`'s, in numbers.

        Args:
            rows: a file of numpy's, `[m, s, c]` in float32.
            tokens: at most so many. unwanted: tokens that are never written.
        """
        return self._ask({
            "rows": str(rows), "prompt": prompt, "beams": beams, "tokens": tokens,
            "unwanted": unwanted,
        })  # fmt: skip

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def _ask(self, request: dict[str, object]) -> dict[str, Any]:
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None and pipe_out is not None
        pipe_in.write(json.dumps(request) + "\n")
        pipe_in.flush()
        line = pipe_out.readline()
        if not line:
            raise RuntimeError(f"CTranslate2's process ended with code {self._process.wait()}")
        return cast(dict[str, Any], json.loads(line))


def serve(kind: str, folder: str, compute: str, threads: int) -> None:
    """Answer requests from standard input until it ends."""
    import ctranslate2

    holder = ctranslate2.models.Whisper if kind == "Whisper" else ctranslate2.Translator
    model = holder(
        folder, device="cpu", compute_type=compute, inter_threads=1, intra_threads=threads
    )
    work = _hear if kind == "Whisper" else _translate
    for line in sys.stdin:
        request = json.loads(line)
        held = peak_bytes(reset=True)
        words, seconds = work(model, request)
        peak = peak_bytes()
        above = None if peak is None or held is None else peak - held
        answer = {"seconds": seconds, "words": words, "peak_bytes": peak, "above_bytes": above}
        print(json.dumps(answer), flush=True)


def _translate(translator: Any, request: dict[str, Any]) -> tuple[list[list[str]], float]:
    tokens = request["tokens"]
    forced = (
        {} if tokens is None else {"min_decoding_length": tokens, "max_decoding_length": tokens}
    )
    start = perf_counter()
    found = translator.translate_batch(
        request["batch"], beam_size=request["beams"], disable_unk=True, length_penalty=1.0, **forced
    )
    seconds = perf_counter() - start
    return [each.hypotheses[0] for each in found], seconds


def _hear(whisper: Any, request: dict[str, Any]) -> tuple[list[list[int]], float]:
    import ctranslate2
    import numpy

    rows = numpy.load(request["rows"])
    prompt, tokens = request["prompt"], request["tokens"]
    start = perf_counter()
    found = whisper.generate(
        ctranslate2.StorageView.from_array(rows), [prompt] * len(rows), beam_size=request["beams"],
        # It takes half of this, or what the prompt leaves, whichever is less.
        max_length=max(2 * tokens, tokens + len(prompt)), length_penalty=1.0,
        suppress_blank=False, suppress_tokens=[-1, *request["unwanted"]],
    )  # fmt: skip
    seconds = perf_counter() - start
    return [each.sequences_ids[0] for each in found], seconds


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
