"""A Hugging Face Marian of the same size, with random weights: it is only timed."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from benchmarks.run import Run
from benchmarks.translating import Batch, Done
from crossattention.seq2seq import Config


@dataclass(frozen=True)
class Marian:
    """Write targets of a forced length with `generate`."""

    model: Any

    @classmethod
    def of(cls, run: Run, config: Config) -> Marian | None:
        """Build one; None where transformers is missing."""
        peer = run.peer("transformers")
        if peer is None:
            return None
        return cls(build(peer, config).eval())

    def translate(self, batch: Batch, beams: int, length: int) -> Done:
        """Translate a batch, writing `length` tokens for each sentence."""
        start = perf_counter()
        pad, longest = self.model.config.pad_token_id, max(map(len, batch))
        tokens = torch.tensor([[*source, *[pad] * (longest - len(source))] for source in batch])
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=tokens, attention_mask=(tokens != pad).long(), num_beams=beams,
                min_new_tokens=length, max_new_tokens=length, do_sample=False,
            )  # fmt: skip
        # The first token is the start, and the last stands for the end.
        return Done([row[1:-1].tolist() for row in found], perf_counter() - start)


def build(transformers: Any, config: Config) -> Any:
    """Build a Marian of the sizes of ours, in training mode."""
    shape = transformers.MarianConfig(
        vocab_size=config.vocabulary, d_model=config.width, max_position_embeddings=512,
        encoder_layers=config.encoder_layers, decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.heads, decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.feed_forward, decoder_ffn_dim=config.feed_forward,
        dropout=config.dropout, attention_dropout=0.0, activation_dropout=0.0,
        activation_function="relu", scale_embedding=True, share_encoder_decoder_embeddings=True,
        pad_token_id=config.pad, bos_token_id=config.begin, eos_token_id=config.end,
        decoder_start_token_id=config.begin, forced_eos_token_id=None,
    )  # fmt: skip
    return transformers.MarianMTModel(shape).train()
