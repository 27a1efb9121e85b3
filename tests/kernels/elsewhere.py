"""Run tests on a copy of the package: `python elsewhere.py FOLDER ARGUMENTS…`, as for pytest.

An editable installation puts a finder of its own before every path, so it is taken out first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def main(folder: str, arguments: list[str]) -> int:
    """Run pytest on the copy in a folder; its exit status."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if "crossattention" not in type(finder).__module__
    ]
    sys.path.insert(0, str(Path(folder).resolve()))
    import crossattention

    if not Path(str(crossattention.__file__)).is_relative_to(Path(folder).resolve()):
        raise SystemExit(f"the package was found at {crossattention.__file__}, not in {folder}")
    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
