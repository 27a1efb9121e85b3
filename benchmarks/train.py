"""One training step of the bundled model's size at 4,000 tokens: ours, `nn.Transformer`, Marian.

Same padded batch of unequal sentences, same dropout (on embeddings and on what each part adds),
float32, the same loss and optimizer; all eager, then all compiled. Ours takes the step that
`crossattention train` takes, with its own cross-entropy; the others take torch's. First ours and
torch's, with equal weights, in evaluation mode, must give the same loss; the Marian's weights are
its own, and it is only timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.marian import build
from benchmarks.run import Run, peak_bytes
from benchmarks.same_weights import decoder_block, encoder_block
from benchmarks.side_by_side import Call, Timing, check_equal, take_turns
from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.translate.cross_entropy import cross_entropy

SHORTEST, LONGEST = 14, 20  # tokens of a source or a target, as in a batch of like lengths
SMOOTHING = 0.1


class Batch(NamedTuple):
    """Tokens [b, s] and [b, t], padded with 0, and the real ones of each source [b]."""

    source: Tensor
    lengths: Tensor
    target: Tensor

    @classmethod
    def of(cls, sentences: int) -> Batch:
        """Draw sentences of every length."""
        lengths = torch.randint(SHORTEST, LONGEST + 1, (2, sentences))
        lengths[:, 0] = LONGEST
        tokens = torch.randint(3, 8000, (2, sentences, LONGEST))
        tokens *= torch.arange(LONGEST) < lengths[..., None]  # beyond its length: padding
        return cls(tokens[0], lengths[0], tokens[1])


Loss = Callable[[Batch], Tensor]


class Torch(nn.Module):
    """`nn.Transformer` with our embedding, from which ours takes its weights."""

    def __init__(self, ours: EncoderDecoder) -> None:
        super().__init__()
        config = ours.config
        self.embedding = ours.embedding
        self.transformer = nn.Transformer(
            config.width, config.heads, config.encoder_layers, config.decoder_layers,
            config.feed_forward, config.dropout, batch_first=True, norm_first=True,
        )  # fmt: skip
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.dropout.p = layer.self_attn.dropout = 0.0  # ours drops what parts add, no more
            if isinstance(layer, nn.TransformerDecoderLayer):
                layer.multihead_attn.dropout = 0.0

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Score the next tokens: int64 [b, s], [b, t] -> [b, t, vocabulary]."""
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == 0
        rows = self.transformer(
            self.embedding(source), self.embedding(target), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return self.embedding.logits(rows)


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Compare losses, then time steps, eager and compiled."""
    config = Config(vocabulary=8000)
    batch = Batch.of(8 if run.quick else 4000 // LONGEST)
    for compiled in (False,) if run.quick else (False, True):
        ours, theirs = _pair(config)
        models: dict[str, nn.Module] = {"ours": ours, "torch": theirs}
        losses: dict[str, Loss] = {
            "ours": partial(_our_loss, ours, *_compiled(compiled, ours.encode, ours.decode)),
            "torch": partial(_loss, *_compiled(compiled, theirs)),
        }
        _check(models, losses, batch)
        peer = run.peer("transformers")
        if peer:
            marian = build(peer, config)
            models["Hugging Face Marian"] = marian
            scores = _compiled(compiled, _scores_of(marian))
            losses["Hugging Face Marian"] = partial(_loss, *scores)
        yield _row(run, models, losses, batch, compiled)


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give how many times as long the others take, and their share of memory."""
    found: dict[str, object] = {}
    for row in rows:
        ratios, peaks = row["ratio"], row["peak_megabytes"]
        assert isinstance(ratios, dict) and isinstance(peaks, dict)
        for peer, ratio in ratios.items():
            found[f"{row['case']}_against_{peer}"] = ratio
            if peaks["ours"] is not None:
                found[f"{row['case']}_peak_over_{peer}"] = peaks["ours"] / peaks[peer]
    return found


def _pair(config: Config) -> tuple[EncoderDecoder, Torch]:
    ours = EncoderDecoder(config)
    theirs = Torch(ours)
    own = theirs.transformer
    ours.encoder = nn.ModuleList(encoder_block(each, "pre") for each in own.encoder.layers)
    ours.decoder = nn.ModuleList(decoder_block(each, "pre") for each in own.decoder.layers)
    ours.encoder_norm.load_state_dict(own.encoder.norm.state_dict())
    ours.decoder_norm.load_state_dict(own.decoder.norm.state_dict())
    return ours.train(), theirs.train()


def _compiled(compiled: bool, *calls: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    return tuple(torch.compile(call) for call in calls) if compiled else calls


def _scores_of(marian: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda source, target: (
        marian(
            input_ids=source, attention_mask=(source != 0).long(), decoder_input_ids=target
        ).logits
    )


def _our_loss(
    model: EncoderDecoder, encode: Callable[..., Any], decode: Callable[..., Tensor], batch: Batch
) -> Tensor:
    rows = decode(batch.target, encode(batch.source, batch.lengths)).flatten(0, 1)
    real = batch.target.flatten().nonzero().squeeze(1)  # padding teaches nothing
    weight = model.embedding.tokens.weight
    return cross_entropy(rows[real], weight, batch.target.flatten()[real], SMOOTHING)


def _loss(scores: Callable[[Tensor, Tensor], Tensor], batch: Batch) -> Tensor:
    found = scores(batch.source, batch.target).flatten(0, 1)  # [b, t, v] -> [b·t, v]
    wanted = batch.target.flatten()
    return F.cross_entropy(found, wanted, ignore_index=0, label_smoothing=SMOOTHING)


def _check(models: dict[str, nn.Module], losses: dict[str, Loss], batch: Batch) -> None:
    with torch.no_grad():
        for model in models.values():
            model.eval()
        check_equal({name: loss(batch) for name, loss in losses.items()}, 1e-5)
        for model in models.values():
            model.train()


def _row(
    run: Run, models: dict[str, nn.Module], losses: dict[str, Loss], batch: Batch, compiled: bool
) -> dict[str, object]:
    lanes = {name: _step(models[name], losses[name], batch) for name in models}
    tokens = int(batch.target.count_nonzero())
    peaks: dict[str, float | None] = {}
    for name, lane in lanes.items():
        lane()  # compiles, makes the optimizer's state, warms up
        peak_bytes(reset=True)
        lane()
        peak = peak_bytes()
        peaks[name] = None if peak is None else peak / 1e6
    once = dict.fromkeys(lanes, 1.0)
    timing = Timing(take_turns(lanes, once, run.seconds(16.0), 2 if run.quick else 5), {})
    return {
        "case": "compiled" if compiled else "eager",
        "tokens_a_second": {name: tokens / timing.median(name) for name in lanes},
        "peak_megabytes": peaks,
    } | timing.row()


def _step(model: nn.Module, loss: Loss, batch: Batch) -> Call:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss(batch).backward()
        optimizer.step()

    return step
