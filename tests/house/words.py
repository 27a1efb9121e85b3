"""What may stand in a file: names that say something, docstrings, no leftovers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from house.source import FunctionNode, decorators, public, read

EMPTY_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "misc"}
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
GLOBAL_STATE = {
    "torch.manual_seed",
    "torch.seed",
    "torch.set_default_dtype",
    "torch.set_default_device",
    "torch.set_num_threads",
    "torch.use_deterministic_algorithms",
    "random.seed",
    "numpy.random.seed",
    "np.random.seed",
    "seed_everything",
    "lightning.seed_everything",
}
# A training run seeds inside a fork of torch's generator, and its threads share the machine's; both
# put back what they found.
RESTORES = ("translate/train.py", "translate/workers.py")
Documented = ast.Module | ast.ClassDef | FunctionNode


def name_faults(package: Path) -> list[str]:
    """List every file or folder whose name says nothing about what is in it."""
    return [
        f"{source.name} has a name that says nothing"
        for source in read(package)
        if EMPTY_NAMES & {part.strip("_") for part in source.parts}
    ]


def docstring_faults(package: Path) -> list[str]:
    """List every module, public class, function or method without a docstring."""
    return [
        f"{source.name}:{getattr(node, 'lineno', 1)} {name} has no docstring"
        for source in read(package)
        for name, node in _documented(source.name, source.tree)
        if not (ast.get_docstring(node) or "").strip()
    ]


def assert_faults(package: Path) -> list[str]:
    """List every `assert`: a check of user input must stay under `python -O`."""
    return [
        f"{source.name}:{node.lineno} asserts"
        for source in read(package)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assert)
    ]


def print_faults(package: Path) -> list[str]:
    """List every `print` outside the command."""
    return [
        f"{source.name}:{line} prints"
        for source in read(package)
        if source.parts[:1] != ("cli",)
        for line, called in _calls(source.tree)
        if called == "print"
    ]


def global_faults(package: Path) -> list[str]:
    """List every call that changes results elsewhere: seeds, default types, thread counts."""
    return [
        f"{source.name}:{line} calls {called}"
        for source in read(package)
        if source.parts[:1] != ("cli",) and source.name not in RESTORES
        for line, called in _calls(source.tree)
        if called in GLOBAL_STATE
    ]


def leftover_faults(package: Path) -> list[str]:
    """List every line that speaks of work left to do."""
    return [
        f"{source.name}:{number} leaves work: {line.strip()}"
        for source in read(package)
        for number, line in enumerate(source.text.splitlines(), 1)
        if LEFTOVER.search(line)
    ]


def _documented(name: str, node: Documented) -> Iterator[tuple[str, Documented]]:
    """The node and the public classes, functions and methods directly inside it."""
    yield name, node
    if isinstance(node, FunctionNode):
        return
    for child in node.body:
        if not isinstance(child, ast.ClassDef | FunctionNode) or not public(child.name):
            continue
        if not decorators(child) & {"overload", "override", "setter"}:
            yield from _documented(child.name, child)


def _calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every call with a plain dotted name, as a line and the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield node.lineno, ast.unparse(node.func)
