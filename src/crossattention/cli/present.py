"""Write translations down: a line of text, a JSON object, or a picture."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossattention.translate.translation import Translation

# What would break "one line in, one line out", or the tabs between the n best.
_BREAKS = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
DIGITS = 4


@dataclass(frozen=True)
class Style:
    """How a translation is written: `json`, `picture`, or as `text`."""

    kind: str = "text"

    def write(self, found: Translation) -> str:
        """Write one translation, and the next best if there are any, without a line end."""
        if self.kind == "json":
            return json.dumps(_object(found), ensure_ascii=False)
        ways = (found, *found.others)
        if self.kind == "picture":
            return "\n\n".join(_picture(way) for way in ways) + "\n"
        return "\t".join(_BREAKS.sub(" ", way.text) for way in ways)


def _object(found: Translation) -> dict[str, Any]:
    body = {"text": found.source, **_way(found), "source_words": list(found.source_words)}
    if found.others:
        body["others"] = [_way(other) for other in found.others]
    return body


def _way(found: Translation) -> dict[str, Any]:
    return {
        "translation": found.text,
        "score": round(found.score, DIGITS),
        "tokens": list(found.tokens),
        "scores": [round(score, DIGITS) for score in found.token_scores],
        "words": list(found.words),
        "alignment": [[round(weight, DIGITS) for weight in row] for row in found.alignment],
    }


def _picture(found: Translation) -> str:
    from crossattention.translate.picture import draw

    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    colour = colour and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((100, 24)).columns
    head = f"{_BREAKS.sub(' ', found.source)}\n{_BREAKS.sub(' ', found.text)}"
    drawn = draw(found, width, colour)
    return f"{head}\n\n{drawn}" if drawn else head
