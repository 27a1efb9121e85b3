"""The commands by name; each loads what it needs when it runs, so that help is quick."""

from __future__ import annotations

import typer

from crossattention.cli.evaluate import evaluate
from crossattention.cli.explain import explain
from crossattention.cli.train import train
from crossattention.cli.translate import translate
from crossattention.cli.tune import tune

app = typer.Typer(
    help="Cross-attention at work: translate, and show what each word read.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (translate, evaluate, train, explain, tune):
    app.command(command.__name__)(command)
