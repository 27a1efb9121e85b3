"""CTranslate2 beside adopted models: the same weights, converted by its own loaders.

Whisper is given the encoder's output, as ours is; a translator encodes its source itself, which
falls into its first token's time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch

from benchmarks.adopt_models import Shape
from benchmarks.ctranslate2_worker import Worker
from benchmarks.run import Run

COMPUTE = ("float32", "int8")
LOADERS = {
    "bart": "BartLoader", "marian": "MarianMTLoader", "t5": "T5Loader", "whisper": "WhisperLoader",
}  # fmt: skip
_WHISPER = {50257: "<|endoftext|>", 50258: "<|startoftranscript|>", 50363: "<|notimestamps|>"}


@dataclass
class Peer:
    """One shape in CTranslate2.

    Attributes:
        ends: whether what is written may end before `tokens`.
    """

    shape: Shape
    worker: Worker
    folder: Path
    ends: bool

    def decode(self, batch: int, beams: int, tokens: int) -> dict[str, Any]:
        """Decode one batch; see `Worker`."""
        if self.shape.model().config.model_type != "whisper":
            draw = torch.Generator().manual_seed(7)
            source = torch.randint(4, 90, (batch, self.shape.rows), generator=draw)
            words = [[str(each) for each in row] for row in source.tolist()]
            return self.worker.translate(words, beams, tokens)
        rows = self.folder / f"{batch}.npy"
        if not rows.exists():
            numpy.save(rows, self.shape.inputs(batch)["encoder_outputs"].last_hidden_state.numpy())
        unwanted = [] if self.ends else [50257]
        return self.worker.hear(rows, list(self.shape.prompt), beams, tokens, unwanted)


@contextmanager
def peers(run: Run, shape: Shape) -> Iterator[dict[str, Peer]]:
    """Convert a shape and start a process for each precision; none, and why, where none can be."""
    kind = shape.model().config.model_type
    missing = shape.apart or ("" if kind in LOADERS else f"CTranslate2 has no loader for {kind}")
    if missing:
        run.missing.append(f"{shape.name}: {missing}")
    with TemporaryDirectory() as name, ExitStack() as stack:
        found: dict[str, Peer] = {}
        if not missing and run.peer("ctranslate2"):
            for compute in COMPUTE:
                folder = Path(name) / compute
                convert(shape.model(), folder, compute)
                reader = "Whisper" if kind == "whisper" else "Translator"
                worker = stack.enter_context(Worker(folder, compute, run.threads, reader))
                ends = shape.model().generation_config.eos_token_id is not None
                found[f"CTranslate2 {compute}"] = peer = Peer(shape, worker, Path(name), ends)
                peer.decode(1, 1, 1)  # warms up
        yield found


def convert(model: Any, folder: Path, quantization: str) -> None:
    """Write a model of transformers into a new folder as CTranslate2 reads it.

    Args:
        model: of a kind in `LOADERS`; it is left as it is.
        folder: made here.
        quantization: "float32" or "int8".
    """
    from ctranslate2.converters import transformers as loaders

    twin = copy.deepcopy(model)  # the loaders change configs, and weights in place
    twin.config.normalize_before = False
    with torch.no_grad():
        spec = getattr(loaders, LOADERS[twin.config.model_type])()(twin, Words(twin.config))
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir()
    spec.save(str(folder))


class Words:
    """What the loaders ask of a tokenizer: token i is the word `str(i)`, but for what they seek."""

    def __init__(self, config: Any) -> None:
        names = dict(enumerate(map(str, range(config.vocab_size))))
        if config.model_type == "whisper":
            names |= _WHISPER
        elif config.pad_token_id == config.vocab_size - 1:
            names[config.pad_token_id] = "<pad>"  # Marian's, which is left out
        self._names = names
        self.eos_token, self.unk_token = names[config.eos_token_id], names[3]
        self.bos_token = self.pad_token = names[config.pad_token_id]

    def get_vocab(self) -> dict[str, int]:
        """Number the words."""
        return {name: token for token, name in self._names.items()}

    def convert_ids_to_tokens(self, token: int) -> str:
        """Name one token."""
        return self._names[token]
