"""A tiny translation model with random weights, as a training run would leave it."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.translate.tokenizer import Tokenizer
from crossattention.translate.translator import Translator

LINES = ["The black cat is sleeping.", "Le chat noir dort.", "a red car", "une voiture rouge"]


def tiny_translator(max_length: int = 80) -> Translator:
    """Make a translator whose translations mean nothing, but end and are always the same."""
    tokenizer = Tokenizer.train(LINES, vocabulary=283)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = EncoderDecoder(
            Config(
                vocabulary=tokenizer.size, width=24, heads=3, feed_forward=31,
                encoder_layers=2, decoder_layers=2, max_length=max_length, alignment=(0, 1),
            )
        ).eval()  # fmt: skip
    return Translator(model, tokenizer)


def save_tiny(folder: Path, checksum: str = "0" * 64) -> Path:
    """Write a tiny model's directory."""
    translator = tiny_translator()
    translator.model.save(folder)
    translator.tokenizer.save(folder / "tokenizer.json")
    (folder / "training.json").write_text(json.dumps({"checksum": checksum}), encoding="utf-8")
    return folder
