"""The training loop: one step a batch, one judgement an epoch, checkpoints in between.

Lightning places model and batches on the machine's device and precision; the order of batches, the
learning rate, the moving average of the weights (Polyak & Juditsky 1992) and checkpoints are ours,
so that a run resumes exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning
import torch

from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.average import follow, lent
from crossattention.translate.batches import Batch
from crossattention.translate.checkpoint import Position, load_checkpoint, save_checkpoint
from crossattention.translate.curve import extend_curve, trim_curve
from crossattention.translate.judge import TranslateFn, bleu_of
from crossattention.translate.optimizer import build_optimizers, rate_at
from crossattention.translate.options import Progress, Report, TrainOptions
from crossattention.translate.quiet import quiet_lightning
from crossattention.translate.tokenizer import Tokenizer
from crossattention.translate.workers import Workers

Batches = Callable[[tuple[int, int]], Iterable[tuple[int, int, Batch]]]


@dataclass(frozen=True)
class Fit:
    """What the loop needs besides a model."""

    options: TrainOptions
    tokenizer: Tokenizer
    judged: Sequence[tuple[str, list[str]]]
    steps: int
    report: Report
    translate_fn: TranslateFn


def fit(run: Fit, model: EncoderDecoder, batches: Batches) -> Position:
    """Train `model` to the end of the run, from the last checkpoint if there is one to resume.

    Args:
        run: see `Fit`.
        model: trained in place; the best judged average is saved to the run's directory.
        batches: yields (epoch, batch number, batch) from a given (epoch, batch number) on.

    Returns:
        Where the run ended.
    """
    loop = _Loop(run, model)
    checkpoint = loop.out / "checkpoint.safetensors"
    if run.options.resume and checkpoint.exists():
        loop.position = load_checkpoint(checkpoint, model, loop.average, loop.built)
    trim_curve(loop.out / "curve.jsonl", loop.position.step)
    if loop.position.stale < run.options.patience:
        with quiet_lightning():
            trainer = lightning.Trainer(
                max_epochs=1,
                accelerator="auto",
                devices=1,
                precision="bf16-mixed" if _bf16(run.options.precision) else "32-true",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            start = (loop.position.epoch, loop.position.batch)
            try:
                trainer.fit(loop, train_dataloaders=batches(start))
            except SystemExit as stop:  # how lightning ends on a signal
                raise KeyboardInterrupt from stop
        if loop.position.step >= run.steps and loop.position.epoch < run.options.epochs:
            loop.judge()  # the run was stopped between its last step and its last judgement
    return loop.position


class _Loop(lightning.LightningModule):
    def __init__(self, run: Fit, model: EncoderDecoder) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.run, self.model = run, model
        self.out = Path(run.options.out)
        options = run.options
        self.built = build_optimizers(
            model, options.optimizer, options.weight_decay, options.workers
        )
        self.average = [p.detach().clone() for p in model.parameters()]
        self.position = Position()
        self.workers = Workers(run.options.workers)
        self.clock = time.monotonic()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return self.built

    def on_train_start(self) -> None:
        self.average = [mean.to(self.device) for mean in self.average]
        self.clock = time.monotonic()

    def training_step(self, item: tuple[int, int, Batch], index: int) -> None:
        options, position = self.run.options, self.position
        epoch, number, batch = item
        if self.trainer.should_stop:
            return
        if epoch > position.epoch:  # the batch before was the last of its epoch
            self.judge()
            if self.trainer.should_stop:
                return
        found = self.workers.backward(self.model, batch, options.smoothing, options.alignment)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), options.clip, foreach=True)
        rate = rate_at(
            position.step, options.peak, options.warmup, self.run.steps, options.schedule
        )
        for optimizer in self.built:
            for group in optimizer.param_groups:
                group["lr"] = rate
        self.workers.each([optimizer.step for optimizer in self.trainer.strategy.optimizers])
        self.model.zero_grad(set_to_none=True)
        follow(self.average, self.model, position.step, options.average)
        self._advance(epoch, number, batch, found, rate)

    def on_train_end(self) -> None:
        if not self.trainer.should_stop and self.position.step >= self.run.steps:
            self.judge()

    def _advance(self, epoch: int, number: int, batch: Batch, found: Any, rate: float) -> None:
        """Count the step, write and report it, and keep a checkpoint now and then."""
        position, now = self.position, time.monotonic()
        took, self.clock = now - self.clock, now
        position.seconds += took
        position.step, position.epoch, position.batch = position.step + 1, epoch, number + 1
        tokens = int((batch.target_out != 0).sum())
        line = {"step": position.step, "epoch": epoch, "loss": found.translation.item()}
        if found.alignment is not None:
            line["alignment"] = found.alignment.item()
        extend_curve(self.out / "curve.jsonl", line | {"rate": rate, "tokens": tokens})
        mean = position.seconds / position.step
        self.run.report(
            Progress(
                "train",
                position.step / self.run.steps,
                position.step,
                epoch,
                line["loss"],
                tokens / took,
                mean * (self.run.steps - position.step),
            )
        )
        if position.step % self.run.options.interval == 0:
            self._save()

    def _save(self) -> None:
        path = self.out / "checkpoint.safetensors"
        save_checkpoint(path, self.model, self.average, self.built, self.position)

    def judge(self) -> None:
        """Translate held-out sentences with the moving average; keep it if it is the best."""
        position = self.position
        self._save()  # judging may fail or be stopped; the epoch is not lost
        with lent(self.model, self.average):
            sentences = [source for source, _ in self.run.judged]
            found = self.run.translate_fn(self.model, self.run.tokenizer, sentences)
            bleu = bleu_of(found, [known for _, known in self.run.judged])
            if bleu > position.best:
                self.model.save(self.out)
        position.stale = 0 if bleu > position.best else position.stale + 1
        position.best = max(position.best, bleu)
        extend_curve(self.out / "curve.jsonl", {"step": position.step, "bleu": bleu})
        self.run.report(Progress("judge", 1.0, position.step, position.epoch, bleu=bleu))
        position.epoch, position.batch = position.epoch + 1, 0
        now = time.monotonic()
        position.seconds += now - self.clock
        self.clock = now
        self._save()
        if position.stale >= self.run.options.patience and self.position.step < self.run.steps:
            self.trainer.should_stop = True


def _bf16(precision: str) -> bool:
    if precision != "auto":
        return precision == "bf16"
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
