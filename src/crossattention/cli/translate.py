"""`crossattention translate`: arguments, standard input or a file, line by line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from crossattention.cli.job import CHUNK, Job, fingerprint
from crossattention.cli.lines import TextFile, arriving
from crossattention.cli.present import Style
from crossattention.errors import ContractError, complaint


def translate(
    text: Annotated[
        list[str] | None, Argument(help="What to translate; else standard input.")
    ] = None,
    beams: Annotated[int, Option(help="Unfinished translations kept at a time; 1 is greedy.")] = 4,
    nbest: Annotated[int, Option(help="Translations of each line, best first, tabs between.")] = 1,
    model: Annotated[
        Path | None, Option(help="A trained model's directory; else the bundled.")
    ] = None,
    weights: Annotated[str, Option(help="float32, or rounded to bfloat16 or float16.")] = "float32",
    show: Annotated[bool, Option("--show", help="Draw what each word read.")] = False,
    as_json: Annotated[bool, Option("--json", help="Write one JSON object a line.")] = False,
    input: Annotated[Path | None, Option(help="A file of lines to translate.")] = None,
    output: Annotated[Path | None, Option(help="Where to write them; needs --input.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on with an interrupted --output.")] = False,
) -> None:
    """Translate English into French, a line for a line.

    An empty line gives an empty line. A line that is too long for the model is cut at sentence
    ends, else at commas, else at spaces, and translated in pieces. Progress of --output is kept in
    OUTPUT.partial until it is whole. With --weights bfloat16 or float16 the weights, and nothing
    else, are rounded and take half the bytes: the faster where few lines are translated at once.
    """
    _check_style(show, as_json, output)
    _check_files(text, input, output, resume)
    source = None if input is None else TextFile.check(input)
    from crossattention.seq2seq.options import BeamOptions
    from crossattention.translate.translator import BUNDLED, Translator

    BeamOptions(beams, nbest)  # its errors come before any work
    translator = Translator.load(model, weights)
    style = Style("picture" if show else "json" if as_json else "text")

    def written(lines: list[str]) -> list[str]:
        found = translator.translate(lines, beams=beams, nbest=nbest)
        return [style.write(each) for each in found]

    if source is not None and output is not None:
        stored = fingerprint((model or BUNDLED) / "model.safetensors")
        settings = {"model": stored, "weights": weights, "beams": beams, "nbest": nbest}
        settings |= {"style": style.kind}
        job = Job(source, output, settings)
        job.run(job.begin(resume), written)
    else:
        for chunk in _chunks(text, source):
            sys.stdout.write("".join(f"{line}\n" for line in written(chunk)))
            sys.stdout.flush()


def _chunks(text: list[str] | None, source: TextFile | None) -> Iterator[list[str]]:
    if text:
        return iter([[line for each in text for line in each.split("\n")]])
    return arriving(sys.stdin.buffer) if source is None else source.chunks(CHUNK)


def _check_style(show: bool, as_json: bool, output: Path | None) -> None:
    if show and as_json:
        raise ContractError(complaint("--show", "without --json", "both", "pass one of them"))
    if show and output is not None:
        do = "pictures are for a terminal: leave one out"
        raise ContractError(complaint("--show", "without --output", "both", do))


def _check_files(
    text: list[str] | None, input: Path | None, output: Path | None, resume: bool
) -> None:
    """Refuse options that contradict each other, and an output that cannot be written."""
    if text and input is not None:
        raise ContractError(complaint("--input", "without TEXT", "both", "pass one of them"))
    if resume and output is None:
        raise ContractError(complaint("--resume", "with --output", "none", "name the output"))
    if output is None:
        return
    if input is None:
        raise ContractError(complaint("--output", "with --input", "none", "or redirect with >"))
    folder = output.parent
    if not folder.is_dir() or output.is_dir() or not os.access(folder, os.W_OK):
        want, do = (
            "a file in a directory that can be written",
            "make the directory, or name another",
        )
        raise ContractError(complaint("--output", want, repr(str(output)), do))
    if output.exists() and input.exists() and output.samefile(input):
        do = "name another file"
        raise ContractError(complaint("--output", "another file than --input", "the same", do))
