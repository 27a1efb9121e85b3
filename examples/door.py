"""What the examples have in common: their command line, their picture, and their last line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from timeit import default_timer
from typing import Any

import torch
from matplotlib.figure import Figure


def enter(about: str | None, words: list[str] | None) -> argparse.Namespace:
    """Read the command line, seed torch, and note the time; exit with code 2 on bad words."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--full", action="store_true", help="train until the figures are reached")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default="build/examples", help="folder of the PNG")
    args = parser.parse_args(words)
    if not 0 <= args.seed < 2**63:
        parser.error(f"--seed must be from 0 to 2**63 - 1, got {args.seed}")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out must be a folder that can be made, got {args.out}: {error.strerror}")
    args.generator, args.start = torch.manual_seed(args.seed), default_timer()
    return args


def save(picture: Figure, path: Path) -> None:
    """Write a picture beside its place, then move it there."""
    unfinished = path.with_suffix(".tmp")
    picture.savefig(unfinished, format="png", dpi=120)
    unfinished.replace(path)


def leave(name: str, args: argparse.Namespace, figures: dict[str, Any]) -> None:
    """Print the figures: the last line, in one piece if --json is asked for."""
    head = {"example": name, "seed": args.seed, "full": args.full}
    figures = figures | {"seconds": round(default_timer() - args.start, 1)}
    print(
        json.dumps(
            head | figures, indent=None if args.json else 2, default=float, ensure_ascii=False
        )
    )
