"""Encoder-decoder models: a shape, a model, and searches that share one memory."""

from crossattention.seq2seq.config import Config
from crossattention.seq2seq.half import halve
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.seq2seq.model import EncoderDecoder
from crossattention.seq2seq.options import BeamOptions, SampleOptions
from crossattention.seq2seq.search import beam, greedy, sample
from crossattention.seq2seq.state import State

__all__ = [
    "BeamOptions",
    "Config",
    "EncoderDecoder",
    "Hypothesis",
    "SampleOptions",
    "State",
    "beam",
    "greedy",
    "halve",
    "sample",
]
