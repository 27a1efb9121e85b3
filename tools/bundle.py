"""Bundle a trained model: half-precision weights into the package, and a card with its figures.

    python tools/bundle.py RUN PAIRS.tsv.gz LINKS_PREFIX [NOTES.md]

RUN is a directory that `crossattention train` left; PAIRS the file it was trained on; LINKS_PREFIX
a marked set (`.e`, `.f`, `.wa.nonullalign`). The card is `card.md` beside this file with every
figure computed here; NOTES, if given, stands before its last section.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch

from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.data import read_pairs
from crossattention.translate.evaluate import evaluate, judged_pairs
from crossattention.translate.score_links import read_marked, score_links
from crossattention.translate.shipped import shipped_pairs, swapped_right
from crossattention.translate.translator import BUNDLED, Translator

CARD = Path(__file__).with_name("card.md")


def main(run: str, pairs: str, links: str, notes: str | None = None) -> None:
    """Write the bundled model's files, each to a temporary file first."""
    model = EncoderDecoder.load(run)
    record = json.loads((Path(run) / "training.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(dir=BUNDLED.parent) as folder:
        model.save(folder, dtype=torch.float16)
        for name in ("tokenizer.json", "training.json"):
            shutil.copy(Path(run) / name, folder)
        translator = Translator.load(folder)  # as it will be used: rounded to half precision
        card = _card(translator, record, pairs, links, notes)
        (Path(folder) / "card.md").write_text(card, encoding="utf-8")
        for path in Path(folder).iterdir():
            path.replace(BUNDLED / path.name)


def _card(
    translator: Translator, record: dict[str, object], pairs: str, links: str, notes: str | None
) -> str:
    judged = judged_pairs(translator, read_pairs(pairs))
    searches = {
        name: asdict(evaluate(translator, judged, beams=count))
        for name, count in (("greedy", 1), ("beams", 4))
    }
    right, asked = swapped_right(translator, shipped_pairs())
    config, options = translator.model.config, record["options"]
    layer, head = config.alignment or (None, None)
    shape = (
        f"{config.encoder_layers} + {config.decoder_layers} layers, width {config.width}, "
        f"{config.heads} heads, feed-forward {config.feed_forward}, {config.norm}-norm, "
        f"{config.vocabulary:,} joint byte-level sub-words, tied embeddings"
    )
    return CARD.read_text(encoding="utf-8").format(
        shape=shape, parameters=sum(p.numel() for p in translator.model.parameters()),
        checksum=record["checksum"], train=record["pairs"]["train"],
        held_out=record["pairs"]["held_out"], command=_command(options),
        steps=record["figures"]["steps"], hours=record["figures"]["seconds"] / 3600,
        judged=options["judged"] or "all", sentences=len(judged), **searches,
        layer=layer, head=head, alignment=options["alignment"], right=right, asked=asked,
        error_rate=score_links(translator, read_marked(links)),
        notes="" if notes is None else Path(notes).read_text(encoding="utf-8") + "\n",
    )  # fmt: skip


def _command(options: dict[str, object]) -> str:
    """Write the command that trains such a model: the options that are not the defaults."""
    from dataclasses import fields

    from crossattention.translate.options import TrainOptions

    said = [
        f"--{each.name.replace('_', '-')} {options[each.name]}"
        for each in fields(TrainOptions)
        if each.name in options and each.name not in ("pairs", "out", "resume")
        and options[each.name] != each.default
    ]  # fmt: skip
    return " ".join(["crossattention train fra-eng.tsv.gz --out DIR", *said])


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
