"""Train a translation model from a file of sentence pairs; a run may be interrupted at any moment.

Read, split, learn a tokenizer, estimate word links, then train; each finished part is kept in the
output directory, so a resumed run repeats none of them and goes on with the same loss curve.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from crossattention.errors import ContractError, complaint
from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.translate.batches import plan_batches, stream
from crossattention.translate.corpus import Corpus, encode_corpus
from crossattention.translate.data import Pairs, read_pairs
from crossattention.translate.fit import Fit, fit
from crossattention.translate.judge import TranslateFn, translate_greedily
from crossattention.translate.links import Links, split_words, word_links
from crossattention.translate.options import Progress, Report, TrainOptions, silent
from crossattention.translate.split import Pair, references, split_pairs
from crossattention.translate.tokenizer import Tokenizer

Kept = TypeVar("Kept", Tokenizer, Links)


@dataclass(frozen=True)
class Outcome:
    """What a run came to: best held-out BLEU, steps taken, and whether patience ended it early."""

    bleu: float
    steps: int
    stopped_early: bool


def train(
    options: TrainOptions,
    report: Report = silent,
    translate_fn: TranslateFn = translate_greedily,
) -> Outcome:
    """Train a model and leave it in `options.out`.

    The directory holds model.safetensors and config.json (the best judged moving average),
    tokenizer.json, training.json (options, data and figures), curve.jsonl (one line a step or
    judgement), links.npz and checkpoint.safetensors, which only a resumed run needs.

    Args:
        options: the run.
        report: told of every step.
        translate_fn: translates held-out sentences for judging.

    Returns:
        The outcome.

    Raises:
        ContractError: the file is no set of pairs, the directory holds another run, or there is
            nothing to resume.
    """
    out = Path(options.out)
    pairs = read_pairs(options.pairs)
    report(Progress("read", 1.0, message=_read_message(pairs)))
    _claim(out, options, pairs.checksum)
    split = split_pairs(pairs.tuples())
    if not split.held_out or not split.train:
        given = f"{len(split.train)} to train on and {len(split.held_out)} held out"
        raise ContractError(complaint("pairs", "enough for both parts", given, "give more pairs"))
    tokenizer = _kept(out / "tokenizer.json", Tokenizer, lambda: _learn(split.train, options))
    corpus = _prepare(split.train, tokenizer, options, report)
    steps = sum(
        len(plan_batches(corpus, options.tokens, options.seed, e)) for e in range(options.epochs)
    )
    judged = _judged(split.held_out, tokenizer, options)
    run = Fit(options, tokenizer, judged, steps, report, translate_fn)
    with torch.random.fork_rng():
        torch.manual_seed(options.seed)
        model = EncoderDecoder(_config(options, tokenizer))
        position = fit(run, model, lambda start: _batches(corpus, options, start))
    stopped_early = position.step < steps
    figures = {"bleu": position.best, "steps": position.step, "seconds": position.seconds}
    sizes = {"train": len(split.train), "held_out": len(split.held_out), "trained": len(corpus)}
    figures["stopped_early"] = stopped_early
    body = _description(options, pairs.checksum) | {"pairs": sizes, "figures": figures}
    _write_json(out / "training.json", body)
    return Outcome(position.best, position.step, stopped_early)


def _judged(
    held_out: Sequence[Pair], tokenizer: Tokenizer, options: TrainOptions
) -> list[tuple[str, list[str]]]:
    """Choose the sentences to judge on; files are often sorted by length, so from all of it."""
    fitting = [
        (sentence, known)
        for sentence, known in references(held_out).items()
        if len(tokenizer.encode(sentence)) < options.longest
    ]
    every = -(-len(fitting) // options.judged) if options.judged else 1
    return fitting[::every]


def _read_message(pairs: Pairs) -> str:
    shown = "; ".join(f"line {bad.number}: {bad.reason}" for bad in pairs.bad[:10])
    left_out = f", {len(pairs.bad)} bad lines left out ({shown})" if pairs.bad else ""
    return f"{len(pairs)} pairs{left_out}"


def _claim(out: Path, options: TrainOptions, checksum: str) -> None:
    """Start a run in a fresh directory, or check that the one to resume is the same run."""
    record = out / "training.json"
    if not options.resume:
        if record.exists():
            do = "resume it, or name another directory"
            raise ContractError(complaint("out", "free of other runs", repr(str(out)), do))
        out.mkdir(parents=True, exist_ok=True)
        _write_json(record, _description(options, checksum))
        return
    if not record.exists():
        do = "start the run without resume"
        raise ContractError(complaint("out", "a run to resume", repr(str(out)), do))
    before = json.loads(record.read_text(encoding="utf-8"))
    now = _description(options, checksum)
    free = {"pairs", "interval", "patience", "epochs"}
    differing = sorted(
        name for name, value in now["options"].items()
        if name not in free and before["options"].get(name) != value
    )  # fmt: skip
    if before["checksum"] != checksum:
        differing.append("the file of pairs")
    if differing:
        do = "resume with the options the run began with"
        raise ContractError(complaint("options", "those of the run", f"other {differing}", do))


def _description(options: TrainOptions, checksum: str) -> dict[str, Any]:
    told = asdict(options) | {"pairs": Path(options.pairs).name}
    del told["resume"], told["out"]  # where a run lies says nothing about the model
    return {"options": told, "checksum": checksum}


def _write_json(path: Path, body: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _kept(path: Path, kind: type[Kept], make: Callable[[], Kept]) -> Kept:
    """Load a part that an earlier start finished, or make and keep it."""
    if path.exists():
        return kind.load(path)
    made = make()
    made.save(path)
    return made


def _learn(pairs: Sequence[Pair], options: TrainOptions) -> Tokenizer:
    return Tokenizer.train((side for pair in pairs for side in pair), options.vocabulary)


def _prepare(
    pairs: Sequence[Pair], tokenizer: Tokenizer, options: TrainOptions, report: Report
) -> Corpus:
    """Encode the pairs that are short enough, with word links if a head is to learn them."""
    whole = encode_corpus(pairs, tokenizer)
    longest = [
        max(s, t) + 1 for s, t in zip(whole.source.lengths, whole.target.lengths, strict=True)
    ]
    short = [pair for pair, size in zip(pairs, longest, strict=True) if size <= options.longest]
    links = None
    if options.alignment > 0:
        links = _kept(Path(options.out) / "links.npz", Links, lambda: _link(short, report))
    report(Progress("encode", 1.0, message=f"{len(pairs) - len(short)} long pairs left out"))
    return encode_corpus(short, tokenizer, links)


def _link(pairs: Sequence[Pair], report: Report) -> Links:
    english = split_words([english for english, _ in pairs])
    french = split_words([french for _, french in pairs])
    return word_links(english, french, progress=lambda done: report(Progress("links", done)))


def _config(options: TrainOptions, tokenizer: Tokenizer) -> Config:
    return Config(
        vocabulary=tokenizer.size,
        width=options.width,
        heads=options.heads,
        feed_forward=options.feed_forward,
        encoder_layers=options.layers,
        decoder_layers=options.layers,
        dropout=options.dropout,
        alignment=(max(options.layers - 2, 0), 0) if options.alignment > 0 else None,
    )


def _batches(corpus: Corpus, options: TrainOptions, start: tuple[int, int]) -> Iterable[Any]:
    return stream(corpus, options.tokens, options.seed, start, options.epochs)
