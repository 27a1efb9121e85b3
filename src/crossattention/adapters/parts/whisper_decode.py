"""openai-whisper's `decode` with beams for several clips at once.

Whisper takes every n-th of the encoded clips after decoding, n beams a clip, as if each had been
repeated for its beams; but it no longer repeats them, so that more than one clip fails. Here the
loop is given the clips as they are, once, and the code around it what it expects.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossattention.adapters.parts.named import check_kind, kind_of
from crossattention.errors import ContractError, complaint

KINDS = (("whisper.model", "Whisper", ("mel", "tokens")),)
USED = ("n_group", "_get_audio_features", "_detect_language", "_main_loop", "run")


class WhisperDecode:
    """Give each Whisper model a `decode` that takes several clips with beams.

    >>> WhisperDecode().knows(nn.Linear(2, 2))
    False
    """

    kind = "openai-whisper"
    whole = False  # the attention inside it is adopted as well

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        return kind_of(module, KINDS) is not None

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its class has changed, or something else has replaced its `decode`."""
        check_kind(module, KINDS)
        if "decode" in vars(module):
            want, given = "as its class defines it", "a Whisper whose decode is replaced"
            raise ContractError(complaint("module", want, given, "adopt it before"))

    def adopt(self, module: nn.Module, form: str) -> None:
        """Replace its `decode`."""
        module.decode = Decode(module)  # type: ignore[assignment]

    def release(self, module: nn.Module) -> None:
        """Let the class decode again."""
        if isinstance(vars(module).get("decode"), Decode):
            del module.decode


class Decode:
    """The `decode` of an adopted Whisper model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @torch.no_grad()
    def _answer(self, mel: Tensor, options: Any = None, **changes: Any) -> Any:
        """Decode; arguments and results are whisper's."""
        from dataclasses import replace

        from whisper.decoding import DecodingOptions, DecodingTask, decode

        options = replace(DecodingOptions() if options is None else options, **changes)
        if mel.dim() != 3 or len(mel) == 1 or options.task == "lang_id":
            return decode(self.model, mel, options)
        task = DecodingTask(self.model, options)
        _give_clips_once(task)
        return task.run(mel)

    __call__ = _answer  # whatever else its caller hands on is the class's to name


def _give_clips_once(task: Any) -> None:
    """Repeat clips for the code around a task's loop, and not for the loop."""
    missing = [name for name in USED if not hasattr(task, name)]
    if missing:
        do = "decode clip by clip with this version of openai-whisper"
        want = f"a task with {', '.join(USED)}"
        raise ContractError(complaint("task", want, f"one without {', '.join(missing)}", do))
    n, features = task.n_group, task._get_audio_features
    detect, loop = task._detect_language, task._main_loop

    def repeated(mel: Tensor) -> Tensor:
        encoded = features(mel)
        if isinstance(encoded, Exception):  # as whisper hands over a wrong dtype
            raise encoded
        several: Tensor = encoded.repeat_interleave(n, 0)
        return several

    task._get_audio_features = repeated
    task._detect_language = lambda clips, tokens: detect(clips[::n], tokens)
    task._main_loop = lambda clips, tokens: loop(clips[::n], tokens)
