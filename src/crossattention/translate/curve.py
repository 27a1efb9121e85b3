"""The training curve on disk: one JSON object a line, cut back when a run resumes before its
end."""

from __future__ import annotations

import json
import os
from pathlib import Path


def extend_curve(path: Path, line: dict[str, float]) -> None:
    """Add one line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def trim_curve(path: Path, step: int) -> None:
    """Drop lines after `step`, which a resumed run writes again, and one cut off by a kill."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except ValueError:
            break
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(kept), encoding="utf-8")
    os.replace(temporary, path)
