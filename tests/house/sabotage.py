"""For each rule, texts that break it, and texts as near as possible that keep it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from house import floors, size, words

Rule = Callable[[Path], list[str]]
LONG_FILE = '"""Say."""\n' + "\n" * 200
LONG_FUNCTION = (
    "def run() -> None:\n" + '    """Run.\n' + "\n" * 50 + '    """\n' + "    a = 1\n" * 40
)
NINE = "".join(f"    a{i}: int\n" for i in range(9))
FIVE = "".join(f"    a{i}: int\n" for i in range(5))
RECORD = "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass"
LOAD_TRANSLATE = "import importlib\nimportlib.import_module('crossattention.translate')\n"

# rule, file, a text that breaks it, a text that keeps it (empty: the name is the fault)
SABOTAGE: list[tuple[Rule, str, str, str]] = [
    (
        floors.floor_faults,
        "mask.py",
        "import crossattention.memory",
        "import crossattention.errors",
    ),
    (
        floors.floor_faults,
        "nn/block.py",
        "from ..seq2seq import model",
        "from ..attention import attend",
    ),
    (floors.floor_faults, "nn/block.py", "from .. import seq2seq", "from .. import attention"),
    (floors.floor_faults, "attention/door.py", "from crossattention import Memory", "import torch"),
    (
        floors.floor_faults,
        "attention/door.py",
        "def f():\n    from ..nn import block",
        "from ..mask import x",
    ),
    (floors.floor_faults, "memory.py", LOAD_TRANSLATE, "import importlib"),
    (floors.floor_faults, "maps/draw.py", "from ..translate import data", "from ..nn import block"),
    (floors.floor_faults, "translate/data.py", "from ..adapters import a", "from . import split"),
    (floors.floor_faults, "kernels/fused.py", "from .matmul import x", "from .contract import x"),
    (floors.floor_faults, "kernels/fused.py", "from . import matmul", "from . import contract"),
    (floors.floor_faults, "kernels/contract.py", "from . import fused", "from ..mask import x"),
    (floors.floor_faults, "seq2seq/model.py", "from ..cli import main", "from ..nn import block"),
    (
        floors.floor_faults,
        "__init__.py",
        "from .cli import main",
        "from .attention.attend import attend",
    ),
    (floors.floor_faults, "extra.py", "x = 1", ""),
    (floors.dependency_faults, "nn/block.py", "import numpy", "import torch\nfrom . import raw"),
    (floors.dependency_faults, "__init__.py", "import rich.table", "def f():\n    import rich"),
    (
        floors.dependency_faults,
        "seq2seq/save.py",
        "try:\n    from safetensors.torch import save\nexcept ImportError: ...",
        "if TYPE_CHECKING:\n    from safetensors.torch import save",
    ),
    (size.file_faults, "mask.py", LONG_FILE + "x = 1\n", LONG_FILE.removesuffix("\n")),
    (size.function_faults, "mask.py", LONG_FUNCTION, LONG_FUNCTION.removesuffix("    a = 1\n")),
    (size.keyword_faults, "mask.py", "def run(**options): ...", "def _run(**options): ..."),
    (
        size.keyword_faults,
        "mask.py",
        "class A:\n    def __init__(self, **o): ...",
        "def f(*o): ...",
    ),
    (
        size.constructor_faults,
        "nn/block.py",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, h, *, i): ...",
        "class A:\n    def __init__(self, a, b, c, d, e, f, g, *, h): ...",
    ),
    (
        size.constructor_faults,
        "nn/a.py",
        f"{RECORD} AConfig:\n{NINE}",
        f"{RECORD} AConfig:\n{FIVE}",
    ),
    (
        size.constructor_faults,
        "nn/a.py",
        f"{RECORD} AConfig:\n{FIVE}\nclass A:\n    def __init__(self, c: AConfig, d, e, f, g): ...",
        f"{RECORD} AConfig:\n{FIVE}\nclass A:\n    def __init__(self, c: AConfig, d, e, f): ...",
    ),
    (words.name_faults, "nn/utils.py", "", ""),
    (words.name_faults, "nn/_helpers.py", "", ""),
    (words.name_faults, "common/mask.py", "", ""),
    (words.docstring_faults, "mask.py", "x = 1", '"""Say."""\nx = 1'),
    (words.docstring_faults, "mask.py", '"""S."""\ndef f(): ...', '"""S."""\ndef _f(): ...'),
    (words.docstring_faults, "mask.py", '"""S."""\nclass A: ...', '"""S."""\nclass _A: ...'),
    (
        words.docstring_faults,
        "mask.py",
        '"""S."""\nclass A:\n    """A."""\n    def f(self): ...',
        '"""S."""\nclass A:\n    """A."""\n    def f(self):\n        """F."""',
    ),
    (words.assert_faults, "mask.py", "def f(x):\n    assert x", "assertion = 1"),
    (words.print_faults, "mask.py", "def f(x):\n    print(x)", "def f(x):\n    x.print()"),
    (words.global_faults, "mask.py", "torch.manual_seed(1)", "generator.manual_seed(1)"),
    (words.leftover_faults, "mask.py", "x = 1  # TODO: y", "x = 1  # todos"),
]
