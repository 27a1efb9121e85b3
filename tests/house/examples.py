"""Examples are run: the blocks of a text in order, and the `>>>` lines of a module."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """Find each fenced Python block: the line it starts on, and its code."""
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in BLOCK.finditer(text)]


def run_blocks(path: Path) -> int:
    """Execute a text's Python blocks in one namespace; return how many there were."""
    namespace: dict[str, object] = {"__name__": "example"}
    found = blocks(path.read_text(encoding="utf-8"))
    for line, code in found:
        # The empty lines make a traceback name the line of the text.
        exec(compile("\n" * (line - 1) + code, str(path), "exec"), namespace)
    return len(found)


def docstring_failures(module: ModuleType) -> str:
    """Run a module's docstring examples; return what went wrong, empty when nothing did."""
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module):
        runner.run(test, out=report.append)
    return "".join(report)
