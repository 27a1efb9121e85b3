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
        folder: from `ctranslate2_model.convert`.
        compute: "float32" or "int8". threads: of its pool.
    """

    def __init__(self, folder: Path, compute: str, threads: int) -> None:
        words = [sys.executable, "-m", "benchmarks.ctranslate2_worker", str(folder), compute]
        root = str(Path(__file__).parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            [*words, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip

    def translate(self, batch: Sequence[Sequence[str]], beams: int) -> dict[str, Any]:
        """Translate one batch: {"seconds", "words" of each sentence, "peak_bytes"}."""
        return self._ask({"batch": batch, "beams": beams})

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


def serve(folder: str, compute: str, threads: int) -> None:
    """Answer requests from standard input until it ends."""
    import ctranslate2

    translator = ctranslate2.Translator(
        folder, device="cpu", compute_type=compute, inter_threads=1, intra_threads=threads
    )
    for line in sys.stdin:
        request = json.loads(line)
        start = perf_counter()
        found = translator.translate_batch(
            request["batch"], beam_size=request["beams"], disable_unk=True, length_penalty=1.0
        )
        seconds = perf_counter() - start
        words = [each.hypotheses[0] for each in found]
        answer = {"seconds": seconds, "words": words, "peak_bytes": peak_bytes()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
