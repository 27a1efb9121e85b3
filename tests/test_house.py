"""The house holds, and each of its rules can fail."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import crossattention
from house import examples, floors, loading, size, words
from house.sabotage import NINE, RECORD, SABOTAGE, Rule
from house.source import PACKAGE, read

README = Path(__file__).parents[1] / "README.md"
PAGES = [README, *sorted((README.parent / "docs").rglob("*.md"))]
NEEDS = re.compile(r"^<!-- needs (\w+) -->$", re.MULTILINE)  # a package that a page's examples use
ROOT_NAMES = [
    "AttentionPool",
    "Cheapest",
    "ContractError",
    "CrossAttention",
    "GatedCrossAttention",
    "Memory",
    "MultiCrossAttention",
    "NoKernelError",
    "Owner",
    "Perceiver",
    "Resampler",
    "SelfAttention",
    "Table",
    "adopt",
    "adopted",
    "attend",
    "attend_with_lse",
    "attention_weights",
    "explain",
    "explain_model",
    "from_attention_mask",
    "from_media",
    "from_padding_mask",
    "from_torch",
    "from_window",
    "merge",
    "release",
]
MODULES = [
    ".".join(("crossattention", *source.parts))
    for source in read(PACKAGE)
    if source.parts != ("__main__",)
]

RULES = sorted({rule for rule, *_ in SABOTAGE}, key=lambda rule: rule.__name__)


def write(folder: Path, name: str, text: str) -> Path:
    """Write one file of a package; return the package's folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    assert rule(PACKAGE) == []


@pytest.mark.parametrize(
    ("rule", "name", "bad", "good"),
    [pytest.param(*one, id=f"{one[0].__name__}-{n}") for n, one in enumerate(SABOTAGE)],
)
def test_the_rule_can_fail(rule: Rule, name: str, bad: str, good: str, tmp_path: Path) -> None:
    faults = rule(write(tmp_path / "bad", name, bad))
    assert len(faults) == 1
    assert name in faults[0]
    kept = name if good else "mask.py"
    assert rule(write(tmp_path / "good", kept, good)) == []


def test_every_rule_is_tried() -> None:
    written = {
        function
        for module in (floors, size, words)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.endswith("_faults")
    }
    assert written == set(RULES)


def test_the_exemptions_are_the_config_and_the_command(tmp_path: Path) -> None:
    text = f"{RECORD} AConfig:\n{NINE}"
    assert size.constructor_faults(write(tmp_path, "seq2seq/config.py", text)) == []
    assert words.print_faults(write(tmp_path, "cli/show.py", "print(1)")) == []
    assert len(size.constructor_faults(write(tmp_path, "seq2seq/model.py", text))) == 1


def test_an_empty_folder_keeps_no_rule(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path)


def test_root_names_are_pinned() -> None:
    assert sorted(crossattention.__all__) == ROOT_NAMES
    assert [name for name in ROOT_NAMES if not hasattr(crossattention, name)] == []


def test_every_root_name_shows_an_example() -> None:
    objects = {name: getattr(crossattention, name) for name in crossattention.__all__}
    bare = [
        name
        for name, thing in objects.items()
        if not (inspect.isclass(thing) and issubclass(thing, Exception))
        and ">>>" not in (inspect.getdoc(thing) or "")
    ]
    assert bare == []


def test_import_loads_torch_alone() -> None:
    loaded = loading.packages_loaded("crossattention", PACKAGE.parent)
    assert loaded - loading.packages_of("torch") == {"crossattention"}


def test_a_careless_import_is_seen(tmp_path: Path) -> None:
    folder = write(tmp_path, "careless.py", "import rich\nimport sympy\n")
    loaded = loading.packages_loaded("careless", folder)
    assert loaded - loading.packages_of("torch") == {"careless", "rich"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_pages_run(page: Path) -> None:
    for package in NEEDS.findall(page.read_text("utf-8")):
        pytest.importorskip(package)
    with torch.random.fork_rng():
        assert examples.run_blocks(page) > 0


def test_readme_names_files_that_exist() -> None:
    named = re.findall(r"\b(?:src|tests|docs|examples)/[\w./]+", README.read_text("utf-8"))
    assert named
    assert [path for path in named if not (README.parent / path).exists()] == []


def test_a_wrong_readme_example_is_seen(tmp_path: Path) -> None:
    text = "# A\n\n```python\nx = 1\n```\n\nand\n\n```python\nassert x == 2\n```\n"
    write(tmp_path, "README.md", text)
    assert examples.blocks(text) == [(4, "x = 1\n"), (10, "assert x == 2\n")]
    with pytest.raises(AssertionError):
        examples.run_blocks(tmp_path / "README.md")


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    with torch.random.fork_rng():
        assert examples.docstring_failures(module) == ""


@pytest.mark.parametrize(("shown", "seen"), [("3", False), ("4", True)])
def test_a_wrong_docstring_example_is_seen(shown: str, seen: bool) -> None:
    module = ModuleType("wrong", f"Add.\n\n>>> 1 + 2\n{shown}\n")
    assert bool(examples.docstring_failures(module)) is seen


def test_the_house_is_the_one_imported() -> None:
    assert Path(str(sys.modules["crossattention"].__file__)).parent == PACKAGE
