import dataclasses
import json
from pathlib import Path

import pytest

from crossattention.errors import ContractError
from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.judge import translate_greedily
from crossattention.translate.options import Progress, TrainOptions
from crossattention.translate.tokenizer import Tokenizer
from crossattention.translate.train import train

COLOURS = {"red": "rouge", "black": "noir", "green": "vert", "white": "blanc", "grey": "gris"}
THINGS = {"cat": "chat", "dog": "chien", "bird": "oiseau", "train": "train", "king": "roi"}


class Stopped(Exception):
    pass


@pytest.fixture
def options(tmp_path: Path) -> TrainOptions:
    lines = [
        f"the {colour} {thing} {count}\tle {french} {rouge} {count}\n"
        for colour, rouge in COLOURS.items()
        for thing, french in THINGS.items()
        for count in range(9)
    ]
    (tmp_path / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    return TrainOptions(
        pairs=str(tmp_path / "pairs.tsv"),
        out=str(tmp_path / "whole"),
        vocabulary=300,
        width=16,
        heads=2,
        feed_forward=24,
        layers=2,
        epochs=2,
        tokens=400,
        warmup=4,
        interval=3,
        precision="float32",
    )


def _curve(out: str) -> list[dict[str, float]]:
    return [json.loads(line) for line in (Path(out) / "curve.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_stopped_run_resumes_on_the_same_curve(options, tmp_path, optimizer) -> None:
    options = dataclasses.replace(options, optimizer=optimizer)
    whole = train(options)
    assert {path.name for path in Path(options.out).iterdir()} >= {
        *("model.safetensors", "config.json", "tokenizer.json", "training.json", "links.npz"),
    }
    part = dataclasses.replace(options, out=str(tmp_path / "part"))

    def stop(progress: Progress) -> None:
        if progress.stage == "train" and progress.step == whole.steps // 2 + 1:
            raise Stopped

    with pytest.raises(Stopped):
        train(part, report=stop)
    resumed = train(dataclasses.replace(part, resume=True))
    assert resumed == whole
    assert _curve(part.out) == _curve(options.out)
    losses = [line["loss"] for line in _curve(options.out) if "loss" in line]
    assert len(losses) == whole.steps and losses[-1] < losses[0]


def test_the_saved_model_translates_as_it_was_judged(options) -> None:
    outcome = train(options)
    model = EncoderDecoder.load(options.out)
    tokenizer = Tokenizer.load(Path(options.out) / "tokenizer.json")
    sentences = ["the red cat 1", "the grey king 2 3 4"]
    together = translate_greedily(model, tokenizer, sentences)
    assert together == [translate_greedily(model, tokenizer, [one])[0] for one in sentences]
    record = json.loads((Path(options.out) / "training.json").read_text())
    assert record["figures"]["bleu"] == outcome.bleu and len(record["checksum"]) == 64


def test_patience_ends_a_run_and_no_alignment_needs_no_links(options) -> None:
    fixed = dataclasses.replace(options, epochs=5, patience=1, alignment=0.0)
    outcome = train(fixed, translate_fn=lambda model, tokenizer, texts: ["le"] * len(texts))
    assert outcome.stopped_early
    assert sum("bleu" in line for line in _curve(options.out)) == 2
    assert not (Path(options.out) / "links.npz").exists()
    assert "alignment" not in _curve(options.out)[0]


def test_other_runs_are_refused(options) -> None:
    with pytest.raises(ContractError, match="a run to resume"):
        train(dataclasses.replace(options, resume=True))
    Path(options.out).mkdir()
    (Path(options.out) / "training.json").write_text('{"options": {}, "checksum": "x"}')
    with pytest.raises(ContractError, match="free of other runs"):
        train(options)
    with pytest.raises(ContractError, match="file of pairs"):
        train(dataclasses.replace(options, resume=True))
    with pytest.raises(ContractError, match="`epochs`"):
        dataclasses.replace(options, epochs=0)
