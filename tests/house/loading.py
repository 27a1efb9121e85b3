"""Which packages an import brings with it beyond torch, seen from a fresh process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

PROGRAM = """
import importlib, json, sys
import torch
before = set(sys.modules)
sys.path.insert(0, sys.argv[2])
importlib.import_module(sys.argv[1])
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def packages_loaded(name: str, folder: Path) -> set[str]:
    """Import torch, then a module found in `folder`; return what came new, less Python's own."""
    command = [sys.executable, "-c", PROGRAM, name, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1])) - set(sys.stdlib_module_names)


def packages_of(distribution: str) -> set[str]:
    """The import names that a distribution and everything it requires provide."""
    wanted, seen = [distribution], set()
    while wanted:
        one = wanted.pop()
        if one in seen:
            continue
        seen.add(one)
        try:
            lines = requires(one) or []
        except PackageNotFoundError:
            continue
        wanted += [_name(line) for line in lines if "extra ==" not in line]
    providers = packages_distributions().items()
    return {package for package, names in providers if seen & {_name(name) for name in names}}


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found.group()).lower() if found else ""
