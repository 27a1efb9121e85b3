"""`crossattention evaluate`: what a model's translations and alignments are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from crossattention.errors import ContractError, complaint


def evaluate(
    model: Annotated[
        Path | None, Option(help="A trained model's directory; else the bundled.")
    ] = None,
    pairs: Annotated[
        Path | None, Option(help="English<TAB>French lines; else the shipped.")
    ] = None,
    links: Annotated[str | None, Option(help="PREFIX of .e, .f and .wa.nonullalign files.")] = None,
    beams: Annotated[int, Option(help="Unfinished translations kept at a time; 1 is greedy.")] = 4,
    weights: Annotated[str, Option(help="float32, or rounded to bfloat16 or float16.")] = "float32",
    limit: Annotated[int | None, Option(help="Judge the first N distinct sentences only.")] = None,
    as_json: Annotated[bool, Option("--json", help="Write one JSON object.")] = False,
) -> None:
    """Score translations: BLEU (all references, and the first), chrF, sentences a second.

    Each distinct English sentence is translated once. On the file that the model was trained on,
    only what was held out from training counts. --links adds the alignment error rate of the
    model's alignment head on marked sentences (Hansards format). On the shipped pairs,
    adjective_noun counts the swapped pairs (black cat, chat noir) in which both words read their
    own.
    """
    if limit is not None and limit < 1:
        raise ContractError(complaint("--limit", "at least 1", str(limit), "raise it"))
    from crossattention.seq2seq.options import BeamOptions
    from crossattention.translate.data import read_pairs
    from crossattention.translate.evaluate import judged_pairs
    from crossattention.translate.score_links import read_marked, score_links
    from crossattention.translate.shipped import PAIRS, shipped_pairs, swapped_right
    from crossattention.translate.translator import Translator

    BeamOptions(beams)
    marked = None if links is None else read_marked(links)
    given = read_pairs(PAIRS if pairs is None else pairs)
    translator = Translator.load(model, weights)
    judged = judged_pairs(translator, given)[:limit]
    found = _scores(translator, judged, beams)
    if marked is not None:
        found["alignment_error_rate"] = score_links(translator, marked)
    if pairs is None:
        right, asked = swapped_right(translator, shipped_pairs())
        found |= {"adjective_noun": right, "adjective_noun_pairs": asked}
    shown = {name: _short(value) for name, value in found.items()}
    if as_json:
        print(json.dumps(shown))
    else:
        print("\n".join(f"{name:<22}{value}" for name, value in shown.items()))


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _scores(translator: Any, judged: list[tuple[str, list[str]]], beams: int) -> dict[str, Any]:
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import Progress

    from crossattention.translate.evaluate import evaluate as score

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("translating", total=len(judged))
        found = score(
            translator, judged, beams=beams, progress=lambda done: bar.update(task, completed=done)
        )
    return asdict(found)
