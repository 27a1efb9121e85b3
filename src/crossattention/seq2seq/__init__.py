"""Encoder-decoder models: a shape, a model, and searches that share one memory."""

from crossattention.seq2seq.config import Config
from crossattention.seq2seq.model import EncoderDecoder
from crossattention.seq2seq.state import State

__all__ = ["Config", "EncoderDecoder", "State"]
