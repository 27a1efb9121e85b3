"""One training step of the bundled model's size at 4,000 tokens: ours, `nn.Transformer`, Marian.

Same batch, same dropout (on embeddings and on what each part adds), float32, the same loss and
optimizer; all eager, then all compiled. First ours and torch's, with equal weights, in evaluation
mode, must give the same scores; the Marian's weights are its own, and it is only timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.marian import build
from benchmarks.run import Run, peak_bytes
from benchmarks.same_weights import decoder_block, encoder_block
from benchmarks.side_by_side import Call, Timing, check_equal, take_turns
from crossattention.seq2seq import Config, EncoderDecoder

LENGTH = 20  # of each source and each target
Scores = Callable[[Tensor, Tensor], Tensor]


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
        rows = self.transformer(
            self.embedding(source), self.embedding(target), tgt_mask=causal, tgt_is_causal=True
        )
        return self.embedding.logits(rows)


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Compare losses, then time steps, eager and compiled."""
    config = Config(vocabulary=8000)
    sentences = 8 if run.quick else 4000 // LENGTH
    source, target = (torch.randint(3, 8000, (sentences, LENGTH)) for _ in range(2))
    lengths = torch.full((sentences,), LENGTH)
    for compiled in (False,) if run.quick else (False, True):
        ours, theirs = _pair(config)
        models: dict[str, nn.Module] = {"ours": ours, "torch": theirs}
        calls: dict[str, Scores] = {
            "ours": lambda s, t, model=ours: model(s, lengths, t),  # type: ignore[misc]
            "torch": lambda s, t, model=theirs: model(s, t),  # type: ignore[misc]
        }
        _check(models, calls, source, target)
        peer = run.peer("transformers")
        if peer:
            marian = build(peer, config)
            models["Hugging Face Marian"] = marian
            calls["Hugging Face Marian"] = _scores_of(marian)
        if compiled:
            calls = {name: torch.compile(call) for name, call in calls.items()}
        yield _row(run, models, calls, source, target, compiled)


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


def _scores_of(marian: nn.Module) -> Scores:
    return lambda source, target: marian(input_ids=source, decoder_input_ids=target).logits


def _check(
    models: dict[str, nn.Module], calls: dict[str, Scores], source: Tensor, target: Tensor
) -> None:
    with torch.no_grad():
        for model in models.values():
            model.eval()
        check_equal({name: call(source, target) for name, call in calls.items()}, 1e-3)
        for model in models.values():
            model.train()


def _row(
    run: Run, models: dict[str, nn.Module], calls: dict[str, Scores], source: Tensor,
    target: Tensor, compiled: bool,
) -> dict[str, object]:  # fmt: skip
    lanes = {name: _step(models[name], calls[name], source, target) for name in models}
    peaks: dict[str, float | None] = {}
    for name, lane in lanes.items():
        lane()  # compiles, makes the optimizer's state, warms up
        peak_bytes(reset=True)
        lane()
        peak = peak_bytes()
        peaks[name] = None if peak is None else peak / 1e6
    once = dict.fromkeys(lanes, 1.0)
    timing = Timing(take_turns(lanes, once, run.seconds(40.0), 2 if run.quick else 5), {})
    return {
        "case": "compiled" if compiled else "eager",
        "tokens_a_second": {name: target.numel() / timing.median(name) for name in lanes},
        "peak_megabytes": peaks,
    } | timing.row()


def _step(model: nn.Module, logits: Scores, source: Tensor, target: Tensor) -> Call:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        scores = logits(source, target).flatten(0, 1)  # [b, t, vocabulary] -> [b·t, vocabulary]
        F.cross_entropy(scores, target.flatten(), label_smoothing=0.1).backward()
        optimizer.step()

    return step
