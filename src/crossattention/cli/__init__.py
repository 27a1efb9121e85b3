"""The `crossattention` command: translate, evaluate, train, explain, tune.

Text in and out is UTF-8. What is wrong with the input is said in one paragraph on standard error,
with exit code 2, before any work; an interrupt exits with 130.
"""

from __future__ import annotations

import sys
import textwrap

EXTRAS = {"lightning": "train", "sacrebleu": "train"}


def main() -> None:
    """Run the command."""
    from crossattention.errors import ContractError

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        from crossattention.cli.app import app

        app()
    except ContractError as error:
        _stop(str(error), 2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "crossattention":
            raise
        extra = EXTRAS.get(missing, "translate")
        _stop(f"{missing} is not installed; pip install 'crossattention[{extra}]'.", 2)
    except OSError as error:  # the disk is full, a file has gone
        _stop(str(error), 1)


def _stop(text: str, code: int) -> None:
    # Long words are names of files: they stay whole, to be copied.
    shown = textwrap.fill(
        f"crossattention: {text}", 100, break_long_words=False, break_on_hyphens=False
    )
    print(shown, file=sys.stderr)
    sys.exit(code)
