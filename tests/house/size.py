"""Files, functions and constructors fit a screen and a head."""

from __future__ import annotations

import ast
from pathlib import Path

from house.source import FunctionNode, Source, classes, decorators, functions, public, read

FILE_LINES = 200
FUNCTION_LINES = 40
CONSTRUCTOR_ARGUMENTS = 8
CONFIG_SUFFIXES = ("Config", "Options", "Settings")
# The model's shape, and what a person may say on a command line: each field is one option there.
EXEMPT_FROM_ARGUMENTS = ("seq2seq/config.py", "translate/options.py", "cli/")


def file_faults(package: Path) -> list[str]:
    """List every file that is too long."""
    counts = [(source.name, len(source.text.splitlines())) for source in read(package)]
    return [
        f"{name} has {lines} lines (at most {FILE_LINES})"
        for name, lines in counts
        if lines > FILE_LINES
    ]


def function_faults(package: Path) -> list[str]:
    """List every function that is too long; the lines of its docstring do not count."""
    return [
        f"{source.name}:{node.lineno} {node.name} has {length} lines (at most {FUNCTION_LINES})"
        for source in read(package)
        for node in functions(source.tree)
        if (length := _length(node)) > FUNCTION_LINES
    ]


def keyword_faults(package: Path) -> list[str]:
    """List every public function that takes `**kwargs`."""
    return [
        f"{source.name}:{node.lineno} {node.name} takes **{node.args.kwarg.arg}"
        for source in read(package)
        for node in functions(source.tree)
        if node.args.kwarg and (public(node.name) or node.name.endswith("__"))
    ]


def constructor_faults(package: Path) -> list[str]:
    """List every constructor with too many arguments; a config's fields count as arguments."""
    sources = read(package)
    configs = {
        node.name: 0 if _exempt(source) else len(_fields(node))
        for source in sources
        for node in classes(source.tree)
        if node.name.endswith(CONFIG_SUFFIXES) and _is_record(node)
    }
    faults = []
    for source in sources:
        for node in () if _exempt(source) else classes(source.tree):
            count = _arguments(node, configs)
            if count > CONSTRUCTOR_ARGUMENTS:
                faults.append(
                    f"{source.name}:{node.lineno} {node.name} takes {count} arguments "
                    f"(at most {CONSTRUCTOR_ARGUMENTS})"
                )
    return faults


def _exempt(source: Source) -> bool:
    return source.name.startswith(EXEMPT_FROM_ARGUMENTS)


def _length(node: FunctionNode) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        text = node.body[0]
        lines -= (text.end_lineno or text.lineno) - text.lineno + 1
    return lines


def _is_record(node: ast.ClassDef) -> bool:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    return "dataclass" in decorators(node) or "NamedTuple" in bases


def _fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """The fields a record's constructor takes."""
    return [
        item
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and "ClassVar" not in ast.unparse(item.annotation)
        and "KW_ONLY" not in ast.unparse(item.annotation)
        and not (item.value and "init=False" in ast.unparse(item.value))
    ]


def _arguments(node: ast.ClassDef, configs: dict[str, int]) -> int:
    for item in node.body:
        if isinstance(item, FunctionNode) and item.name == "__init__":
            args = [*item.args.posonlyargs, *item.args.args, *item.args.kwonlyargs][1:]
            return sum(_weight(arg, configs) for arg in args)
    named = node.name.endswith(CONFIG_SUFFIXES)
    return len(_fields(node)) if named and _is_record(node) else 0


def _weight(arg: ast.arg, configs: dict[str, int]) -> int:
    """How many arguments one argument stands for: a config's fields, or 1."""
    names = ast.walk(arg.annotation) if arg.annotation else ()
    found = [configs[n.id] for n in names if isinstance(n, ast.Name) and n.id in configs]
    return max(found, default=1)
