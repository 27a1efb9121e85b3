"""Search: from a source to the target sentences that a model finds likely.

    greedy   y_t = argmax p(y_t | y_<t, x)

The source is encoded once, each layer projects it once, and all lanes read that one memory. What
each token read is noted on the way, so an alignment costs no second pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crossattention.argument import check_flag, check_tensor
from crossattention.errors import ContractError, complaint, describe
from crossattention.mask import check_lengths
from crossattention.seq2seq.batch import Batch
from crossattention.seq2seq.beams import write_beams
from crossattention.seq2seq.chains import write_chains
from crossattention.seq2seq.draw import draw
from crossattention.seq2seq.hypothesis import Hypothesis
from crossattention.seq2seq.model import EncoderDecoder
from crossattention.seq2seq.options import BeamOptions, SampleOptions
from crossattention.seq2seq.prepared import prepared
from crossattention.seq2seq.rules import Rules

Prefix = Sequence[Sequence[int]]


@torch.inference_mode()
def greedy(
    model: EncoderDecoder,
    source: Tensor,
    lengths: Tensor | Sequence[int],
    *,
    max_length: int | None = None,
    prefix: Prefix | None = None,
    align: bool = False,
) -> list[Hypothesis]:
    """Write the likeliest next token until the end is likeliest.

    Args:
        model: in evaluation mode.
        source: int64 `[b, s]`, padded at the end.
        lengths: integers `[b]`, real tokens of each source.
        max_length: the most tokens before the end, which is forced there; None: twice the source's
            and ten, as far as the model's positions reach.
        prefix: for each sentence, the tokens it must start with, which may differ in number.
        align: whether to note what each token read.

    Returns:
        A hypothesis for each sentence.

    Raises:
        ContractError: a model in training mode, sizes, or limits that cannot be kept.

    >>> from crossattention.seq2seq.config import Config
    >>> model = EncoderDecoder(Config(vocabulary=11, width=8, heads=2)).eval()
    >>> len(greedy(model, torch.tensor([[3, 4, 2]]), [3], max_length=5))
    1
    """
    batch = _start(model, source, lengths, 1, max_length, prefix, align)
    return [lanes[0] for lanes in write_chains(batch, lambda scores: scores.argmax(-1))]


@torch.inference_mode()
def beam(
    model: EncoderDecoder,
    source: Tensor,
    lengths: Tensor | Sequence[int],
    options: BeamOptions | None = None,
    *,
    max_length: int | None = None,
    prefix: Prefix | None = None,
    align: bool = False,
) -> list[list[Hypothesis]]:
    """Keep several beginnings, and find the best sentences that they lead to.

    Arguments and errors as in `greedy`; `options` describes the beam, None: `BeamOptions()`.

    Returns:
        For each sentence, at most `nbest` distinct hypotheses, best first; fewer only where fewer
        can be written.

    >>> from crossattention.seq2seq.config import Config
    >>> model = EncoderDecoder(Config(vocabulary=11, width=8, heads=2)).eval()
    >>> found = beam(model, torch.tensor([[3, 4, 2]]), [3], BeamOptions(nbest=2), max_length=5)
    >>> found[0][0].score >= found[0][1].score
    True
    """
    options = BeamOptions() if options is None else options
    _check_kind("options", options, BeamOptions)
    batch = _start(model, source, lengths, options.beams, max_length, prefix, align)
    return write_beams(batch, options)


@torch.inference_mode()
def sample(
    model: EncoderDecoder,
    source: Tensor,
    lengths: Tensor | Sequence[int],
    options: SampleOptions | None = None,
    *,
    generator: torch.Generator | None = None,
    max_length: int | None = None,
    prefix: Prefix | None = None,
    align: bool = False,
) -> list[list[Hypothesis]]:
    """Draw each next token.

    Arguments and errors as in `greedy`; `options` describes what is drawn from, None:
    `SampleOptions()`, the model's own distribution; chance comes from `generator`, on the model's
    device, None: torch's own.

    Returns:
        For each sentence, `samples` hypotheses in the order drawn. Their scores are the model's
        log-probabilities, before temperature and the like.

    >>> from crossattention.seq2seq.config import Config
    >>> model = EncoderDecoder(Config(vocabulary=11, width=8, heads=2)).eval()
    >>> source, options = torch.tensor([[3, 4, 2]]), SampleOptions(samples=3)
    >>> len(sample(model, source, [3], options, max_length=5)[0])
    3
    """
    chosen = SampleOptions() if options is None else options
    _check_kind("options", chosen, SampleOptions)
    if generator is not None:
        _check_kind("generator", generator, torch.Generator)
    batch = _start(model, source, lengths, chosen.samples, max_length, prefix, align)
    return write_chains(batch, lambda scores: draw(scores, chosen, generator))


def _check_kind(name: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        want, do = f"a {kind.__name__}", "pass one, or None"
        raise ContractError(complaint(name, want, describe(given), do))


def _start(
    model: EncoderDecoder, source: Tensor, lengths: Tensor | Sequence[int], lanes: int,
    max_length: int | None, prefix: Prefix | None, align: bool,
) -> Batch:  # fmt: skip
    """Check everything, then encode the source for all lanes."""
    if not isinstance(model, nn.Module) or not hasattr(model, "config"):
        do = "pass an EncoderDecoder"
        raise ContractError(complaint("model", "an encoder-decoder", describe(model), do))
    if model.training:
        do = "call model.eval()"
        raise ContractError(complaint("model", "in evaluation mode", "one in training", do))
    check_flag("align", align, "choose whether to note what each token read")
    want, do = "integers [b, s], int64 or int32", "pass token numbers, one row a sentence"
    check_tensor("source", source, (torch.int64, torch.int32), want, do, rank=2)
    real = check_lengths(lengths, *source.shape).cpu()  # limits need them there
    rules = Rules.of(model.config, real.tolist(), max_length, prefix)
    # Targets are about as long as their sources; this decides which form the memory takes.
    expected = min(max(rules.limits, default=0), source.shape[1]) + 1
    decoder = prepared(model) if source.numel() else None
    if decoder is None:
        memory = model.encode(source, real, queries=expected * lanes, reads=expected)
    else:
        rows = decoder.encode(model.embedding(source), real)
        memory = model.remember(rows, real, form="projected")
    return Batch(model, memory, rules, lanes, align, decoder)
