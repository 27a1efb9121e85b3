"""Write down what was measured: a table for people, JSON for machines.

The JSON file is complete or as it was: it is written beside its place and then moved there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.goals import GOALS


def write_json(path: Path, body: Mapping[str, object]) -> None:
    """Write JSON to a temporary file beside `path`, then move it there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Draw rows as aligned columns; a mapping in a row becomes a column for each of its keys."""
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    lines = [names, *([_text(row.get(name)) for name in names] for row in flat)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def figures(answers: Mapping[str, Mapping[str, object]]) -> str:
    """Draw the figures that have a floor as a Markdown table, as the README shows it."""
    lines = ["| question | figure | measured | floor (goal) | reached |", "|---|---|---|---|---|"]
    for name, answer in answers.items():
        summary = answer["summary"]
        assert isinstance(summary, Mapping)
        for figure, value in summary.items():
            goal = GOALS.get((name, figure))
            if goal is None:
                continue
            reached = "" if value is None else goal.verdict(value)
            cells = name, str(figure).replace("_", " "), _text(value), str(goal), reached
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _flat(row: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    short = {"milliseconds": "ms", "ratio": "×"}
    for name, value in row.items():
        if name in ("spread", "left_out_milliseconds"):  # in the JSON
            continue
        if isinstance(value, Mapping):
            label = short.get(name, name)
            found |= {f"{each} {label}": one for each, one in value.items()}
        else:
            found[name] = value
    return found


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
