"""What a training run is told, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crossattention.errors import ContractError, complaint


@dataclass(frozen=True)
class TrainOptions:
    """Describe a training run; written to training.json beside the weights.

    Attributes:
        pairs: file of `English<TAB>French` lines, plain or gzip.
        out: directory of the run and of the trained model.
        vocabulary: joint tokens of both languages.
        width, heads, feed_forward, layers, dropout: the model's shape; `layers` on either side.
        epochs: passes over the training pairs that the schedule spans.
        tokens: budget of a batch: pairs times the longest sentence, in tokens.
        longest: pairs with a longer side (in tokens, end included) are left out of training.
        optimizer: "adamw" or "muon".
        peak, warmup, schedule: learning rate at its highest, steps of its rise, shape of its fall.
        weight_decay: shrinkage of matrices, per step and times the rate.
        clip: largest gradient norm.
        smoothing: label smoothing, the share of probability spread over all tokens.
        alignment: weight of the loss that teaches one head of the layer before the last to
            align; 0 leaves it out, and no word links are estimated.
        average: decay of the moving average of the weights, which is what is judged and kept.
        precision: "bf16", "float32", or "auto": bf16 where the machine computes in it.
        patience: judgements without a better BLEU before the run stops early.
        judged: held-out sentences translated at each judgement (one an epoch); 0 is all.
        interval: steps between checkpoints.
        workers: threads that share each batch (see `workers.py`); the number of cores is fastest.
        seed: of weights, dropout and batch order.
        resume: go on from the last checkpoint in `out`.
    """

    pairs: str
    out: str
    vocabulary: int = 8000
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    layers: int = 3
    dropout: float = 0.1
    epochs: int = 9
    tokens: int = 2500
    longest: int = 128
    optimizer: str = "muon"
    peak: float = 2e-3
    warmup: int = 400
    schedule: str = "linear"
    weight_decay: float = 0.01
    clip: float = 1.0
    smoothing: float = 0.1
    alignment: float = 0.05
    average: float = 0.999
    precision: str = "auto"
    patience: int = 3
    judged: int = 0
    interval: int = 200
    workers: int = 1
    seed: int = 1
    resume: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "tokens", "longest", "patience", "interval", "layers", "workers"):
            if getattr(self, name) < 1:
                given = repr(getattr(self, name))
                raise ContractError(complaint(name, "at least 1", given, "raise it"))
        for name, choices in (
            ("optimizer", ("adamw", "muon")),
            ("schedule", ("cosine", "linear")),
            ("precision", ("auto", "bf16", "float32")),
        ):
            if getattr(self, name) not in choices:
                given = repr(getattr(self, name))
                raise ContractError(complaint(name, f"one of {choices}", given, "choose one"))
        if self.alignment < 0 or not 0 <= self.smoothing < 1 or not 0 <= self.average < 1:
            given = f"{self.alignment}, {self.smoothing}, {self.average}"
            names = "alignment` and `smoothing` and `average"
            raise ContractError(complaint(names, "at least 0 (and below 1)", given, "set them"))


@dataclass(frozen=True)
class Progress:
    """One report of a run.

    Attributes:
        stage: "read", "links", "encode", "train" or "judge".
        done: part of the stage, 0 to 1.
        step, epoch: of training.
        loss: training loss of the step (stage "train").
        tokens_per_second, seconds_left: speed over target tokens and time left of the whole run.
        bleu: held-out BLEU, where it was just judged.
        message: words for people, such as how many bad lines there were.
    """

    stage: str
    done: float
    step: int = 0
    epoch: int = 0
    loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    bleu: float | None = None
    message: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""
