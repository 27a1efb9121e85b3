"""Models of published shapes for `adopt`: Whisper with its real weights where they are installed.

Everywhere else weights are random and the length is forced, so that every lane decodes alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from benchmarks.run import Run

Cell = tuple[int, int]  # a batch size, and a number of beams
FULL: tuple[Cell, ...] = tuple((batch, beams) for batch in (1, 4, 8) for beams in (1, 4, 5))
LONG = "CTranslate2 takes no encoder output for it, and would have to encode 8,000 rows"
SPEECH = "WHISPER_WAV"  # the path of a 16 kHz mono wav file, for the real weights
PROMPT = (50258, 50259, 50359, 50363)  # start, English, transcribe, no time stamps


@dataclass(frozen=True)
class Shape:
    """One model and what it is given.

    Attributes:
        rows: of one source, as the decoder reads it.
        tokens: at most so many are written; all of them where the length is forced.
        prompt: tokens that are given first.
        cells: batch sizes and numbers of beams that are measured.
        given: makes the rows of one source, where they are not random.
        again: cells whose figures are quoted, and so are measured more often.
        apart: why CTranslate2 is not measured beside it; empty where it is.
    """

    name: str
    model: Callable[[], Any]
    rows: int
    tokens: int
    prompt: tuple[int, ...] = (0,)
    cells: tuple[Cell, ...] = FULL
    given: Callable[[Any], Tensor] | None = field(default=None)
    again: tuple[Cell, ...] = ()
    apart: str = ""

    def inputs(self, batch: int) -> dict[str, Any]:
        """Make a batch: encoder outputs, so that decoding alone is timed."""
        from transformers.modeling_outputs import BaseModelOutput

        if self.given is not None:
            rows = self.given(self.model()).expand(batch, -1, -1).contiguous()
        else:
            width = self.model().get_encoder().config.hidden_size
            draw = torch.Generator().manual_seed(7)
            rows = torch.randn(batch, self.rows, width, generator=draw)
        start = torch.tensor([self.prompt]).expand(batch, -1)
        outputs = BaseModelOutput(last_hidden_state=rows)
        return {"encoder_outputs": outputs, "decoder_input_ids": start}


def write(model: Any, given: dict[str, Any], beams: int, tokens: int) -> Any:
    """Write tokens: all that are asked for where the model cannot end."""
    from transformers.generation import GenerationMixin
    from transformers.modeling_outputs import BaseModelOutput

    outputs = BaseModelOutput(**given["encoder_outputs"])  # stock would leave them repeated
    with torch.inference_mode():
        return GenerationMixin.generate(
            model, **(given | {"encoder_outputs": outputs}), num_beams=beams, do_sample=False,
            max_new_tokens=tokens, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip


def shapes(run: Run) -> Iterator[Shape]:
    """List the shapes; tiny ones for a quick look."""
    if run.peer("transformers") is None:
        return
    if run.quick:
        yield Shape("BART tiny", _tiny, 40, 4, (2,), ((1, 2),))
        return
    quoted = ((1, 1), (1, 5), (4, 5))
    if SPEECH in os.environ and _hears(run):
        yield Shape("Whisper base", _real, 1500, 60, PROMPT, given=_heard, again=quoted)
    else:
        yield Shape("Whisper base, random", _whisper, 1500, 26, PROMPT, again=quoted)
    yield Shape("BART base", _bart, 1024, 64, (2,), again=((4, 4),))
    yield Shape("Marian", _marian, 64, 64, (58100,))
    yield Shape("T5 base", _t5, 512, 64)
    yield Shape("T5 base, 8,000 rows", _t5, 8000, 64, cells=((1, 4),), again=((1, 4),), apart=LONG)


def _hears(run: Run) -> bool:
    """Whether Whisper's real weights are here; if not, what is missing is noted."""
    if run.peer("real_whisper") is None:
        return False
    try:
        _real()
    except SystemExit as error:  # the tool's way of saying that weights are not installed
        run.missing.append(f"real_whisper: {error}")
        return False
    return True


@cache
def _real() -> Any:
    import real_whisper

    model, _, prompt = real_whisper.load("base")
    assert tuple(prompt) == PROMPT
    return model


def _heard(model: Any) -> Tensor:
    import real_whisper

    with torch.inference_mode():
        sound = real_whisper.transcribe_inputs(os.environ[SPEECH])
        rows: Tensor = model.get_encoder()(sound).last_hidden_state
    return rows


def _random(kind: str, config: Any) -> Any:
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = getattr(transformers, kind)(config).eval()
    model.generation_config.eos_token_id = None  # it cannot end
    model.generation_config.forced_eos_token_id = None
    return model


@cache
def _tiny() -> Any:
    from transformers import BartConfig

    sizes = {"d_model": 24, "vocab_size": 97, "encoder_ffn_dim": 31, "decoder_ffn_dim": 31}
    heads = {"encoder_attention_heads": 3, "decoder_attention_heads": 3}
    layers = {"encoder_layers": 1, "decoder_layers": 2}
    return _random("BartForConditionalGeneration", BartConfig(**sizes, **heads, **layers))


@cache
def _whisper() -> Any:
    from transformers import WhisperConfig

    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    sizes = {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    tokens = {"eos_token_id": 50257, "decoder_start_token_id": PROMPT[0]}
    config = WhisperConfig(**sizes, **heads, **tokens, encoder_layers=6, decoder_layers=6)
    return _random("WhisperForConditionalGeneration", config)


@cache
def _bart() -> Any:
    from transformers import BartConfig

    sizes = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    config = BartConfig(**sizes, **heads, encoder_layers=6, decoder_layers=6)
    return _random("BartForConditionalGeneration", config)


@cache
def _marian() -> Any:
    from transformers import MarianConfig

    sizes = {"d_model": 512, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    layers = {"encoder_layers": 6, "decoder_layers": 6}
    ends = {"pad_token_id": 58100, "decoder_start_token_id": 58100, "vocab_size": 58101}
    return _random("MarianMTModel", MarianConfig(**sizes, **heads, **layers, **ends))


@cache
def _t5() -> Any:
    from transformers import T5Config

    config = T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0
    )
    return _random("T5ForConditionalGeneration", config)
