"""Imports point down: from a file's own floor or a lower one, never up and never to a neighbour."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from house.source import FunctionNode, Source, read

NAME = "crossattention"
CORE_DEPENDENCY = "torch"
ROOT = "the root"
FLOORS = (
    ("errors",),
    ("argument",),
    ("mask", "window", "media"),
    ("owner",),
    ("grown", "edition"),
    ("source", "content", "extent"),
    ("holding",),
    ("memory",),
    ("kernels",),
    ("attention",),
    ("nn",),
    ("seq2seq",),
    ("translate", "adapters", "maps"),
    (ROOT,),
    ("cli", "__main__"),
)
HEIGHT = {name: height for height, names in enumerate(FLOORS) for name in names}
CORE = HEIGHT["seq2seq"]
KERNELS = "kernels"
SHARED_BY_KERNELS = ("contract", "count", "first_order", "fold")


def floor_faults(package: Path) -> list[str]:
    """List every import that points up or across, and every file that stands on no floor."""
    faults = []
    for source in read(package):
        here = source.parts[0] if source.parts else ROOT
        if here not in HEIGHT:
            faults.append(f"{source.name} stands on no floor")
            continue
        for line, target in _imports(source):
            reason = _reason(source.parts, here, target)
            if reason:
                faults.append(f"{source.name}:{line} imports {'.'.join((NAME, *target))}: {reason}")
    return faults


def dependency_faults(package: Path) -> list[str]:
    """List what the core, or the root, imports on loading besides torch and Python's own."""
    allowed = {NAME, CORE_DEPENDENCY, *sys.stdlib_module_names}
    return [
        f"{source.name}:{line} needs {top} on loading"
        for source in read(package)
        if not source.parts or HEIGHT.get(source.parts[0], CORE) <= CORE
        for line, top in _loaded(source.tree)
        if top not in allowed
    ]


def _loaded(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The packages imported outside functions, by line; those for type checkers do not count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name.partition(".")[0]) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.lineno, child.module.partition(".")[0]
        elif isinstance(child, FunctionNode) or (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            continue
        else:
            yield from _loaded(child)


def _imports(source: Source) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every import of the package itself, as a line and a module path under the package."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = _absolute(source, node)
            paths = [[*start, alias.name] for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            paths = [str(name).split(".") for name in names]
        else:
            continue
        yield from ((node.lineno, tuple(path[1:])) for path in paths if path[0] == NAME)


def _absolute(source: Source, node: ast.ImportFrom) -> list[str]:
    """The module an import-from names, with leading dots resolved."""
    named = node.module.split(".") if node.module else []
    if not node.level:
        return named
    folder = [NAME, *source.name.split("/")[:-1]]
    return folder[: len(folder) - node.level + 1] + named


def _reason(parts: tuple[str, ...], here: str, target: tuple[str, ...]) -> str:
    """Why a file may not import a target; empty when it may."""
    there = target[0] if target and target[0] in HEIGHT else ROOT
    if HEIGHT[there] > HEIGHT[here]:
        return f"{there} is above {here}"
    if HEIGHT[there] == HEIGHT[here] and there != here:
        return f"{there} is a neighbour of {here}"
    if here == there == KERNELS and len(parts) > 1:
        other = target[1] if len(target) > 1 else ""
        if other not in (parts[1], *SHARED_BY_KERNELS):
            return "a kernel imports no other"
    return ""
