"""`crossattention train`: a model from a file of sentence pairs, resumable at any moment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


def train(
    pairs: Annotated[Path, Argument(help="English<TAB>French lines, plain or gzip.")],
    out: Annotated[Path, Option(help="Directory of the run and of the trained model.")],
    resume: Annotated[bool, Option("--resume", help="Go on from the last checkpoint.")] = False,
    epochs: Annotated[int, Option(help="Passes over the pairs.")] = 9,
    vocabulary: Annotated[int, Option(help="Joint tokens of both languages.")] = 8000,
    width: Annotated[int, Option(help="Width of the model.")] = 256,
    heads: Annotated[int, Option(help="Attention heads.")] = 4,
    feed_forward: Annotated[int, Option(help="Hidden width of feed-forward parts.")] = 1024,
    layers: Annotated[int, Option(help="Layers on either side.")] = 3,
    dropout: Annotated[float, Option(help="Dropout.")] = 0.1,
    tokens: Annotated[int, Option(help="Tokens of a batch, padding included.")] = 2500,
    longest: Annotated[int, Option(help="Leave out pairs with a longer side, in tokens.")] = 128,
    optimizer: Annotated[str, Option(help="adamw or muon.")] = "muon",
    peak: Annotated[float, Option(help="Highest learning rate.")] = 2e-3,
    warmup: Annotated[int, Option(help="Steps of its rise.")] = 400,
    schedule: Annotated[str, Option(help="Shape of its fall: linear or cosine.")] = "linear",
    weight_decay: Annotated[float, Option(help="Shrinkage of matrices.")] = 0.01,
    clip: Annotated[float, Option(help="Largest gradient norm.")] = 1.0,
    smoothing: Annotated[float, Option(help="Label smoothing.")] = 0.1,
    alignment: Annotated[float, Option(help="Weight of the alignment loss; 0: none.")] = 0.05,
    average: Annotated[float, Option(help="Decay of the weights' moving average.")] = 0.999,
    precision: Annotated[str, Option(help="auto, bf16 or float32.")] = "auto",
    patience: Annotated[int, Option(help="Judgements without a better BLEU until stop.")] = 3,
    judged: Annotated[int, Option(help="Held-out sentences judged an epoch; 0: all.")] = 0,
    interval: Annotated[int, Option(help="Steps between checkpoints.")] = 200,
    workers: Annotated[int, Option(help="Threads that share each batch.")] = 1,
    seed: Annotated[int, Option(help="Of weights, dropout and order.")] = 1,
) -> None:
    """Train a translation model, judged on held-out pairs, and keep the best.

    Ctrl-C, or a kill, loses at most --interval steps; --resume goes on from there, with the options
    that the run began with; --epochs alone may change, and the rate then falls to zero there.
    """
    given = {name: str(value) if isinstance(value, Path) else value
             for name, value in locals().items()}  # fmt: skip
    _run(given)


def _run(given: dict[str, object]) -> None:
    from crossattention.cli.follow import following
    from crossattention.translate.options import TrainOptions

    options = TrainOptions(**given)  # type: ignore[arg-type]  # the signature above is its fields
    from crossattention.translate.train import train as fit

    try:
        with following() as report:
            outcome = fit(options, report)
    except KeyboardInterrupt:
        print("interrupted: --resume goes on from the last checkpoint.", file=sys.stderr)
        raise
    early = ", stopped early" if outcome.stopped_early else ""
    print(f"held-out BLEU {outcome.bleu:.2f} after {outcome.steps} steps{early}; {options.out}")
