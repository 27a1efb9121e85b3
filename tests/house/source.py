"""A package's files, parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "crossattention"
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file: `name` is its path in the package, as in `kernels/fused.py`."""

    name: str
    text: str
    tree: ast.Module

    @property
    def parts(self) -> tuple[str, ...]:
        """The module path under the package, without `__init__`."""
        parts = self.name.removesuffix(".py").split("/")
        return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


def read(package: Path) -> list[Source]:
    """Parse every Python file of a package; an empty folder is an error."""
    sources = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        sources.append(Source(path.relative_to(package).as_posix(), text, ast.parse(text)))
    if not sources:
        raise FileNotFoundError(f"no Python file in {package}")
    return sources


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    """Every function and method, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, FunctionNode))


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """Every class, nested ones too."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def decorators(node: FunctionNode | ast.ClassDef) -> set[str]:
    """The last names of a node's decorators: `functools.cache` and `cache(…)` are `cache`."""
    names = set()
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.add(ast.unparse(target).rpartition(".")[2])
    return names


def public(name: str) -> bool:
    """Whether a name has no leading underscore."""
    return not name.startswith("_")
