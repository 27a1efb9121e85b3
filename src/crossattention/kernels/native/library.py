"""The native kernel's library: found beside this file, or absent, with what to do about it.

It is loaded when it is first asked for and never compiled here. A library that was built from
another source than the one beside it counts as absent.
"""

from __future__ import annotations

import ctypes
from functools import cache

from crossattention.errors import NoKernelError
from crossattention.kernels.native.build import FOLDER, LIBRARY, SOURCE, fingerprint

INSTRUCTIONS = (
    "portable",
    "avx2",
    "avx512",
    "avx512bf16",
)  # in the order of the library's own numbers
BRINGS = "It reads two to four times as fast as torch where few queries read: decoding and beams"
BUILD = "run `python -m crossattention.kernels.native.build` with a C++ compiler installed"


@cache
def load() -> ctypes.CDLL | str:
    """Load the library, or say why there is none.

    >>> isinstance(load(), ctypes.CDLL | str)
    True
    """
    path = FOLDER / LIBRARY
    if not path.exists():
        return f"it is not built ({BUILD}). {BRINGS}"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        return f"its library cannot be loaded: {error}. {BRINGS}"
    library.crossattention_source.restype = ctypes.c_char_p
    library.crossattention_runs_here.argtypes = [ctypes.c_int64]
    library.crossattention_runs_here.restype = ctypes.c_int64
    library.crossattention_read.argtypes = [ctypes.c_char_p]
    library.crossattention_read.restype = ctypes.c_int64
    if SOURCE.exists() and library.crossattention_source() != fingerprint().encode():
        return f"its library was built from another source ({BUILD}). {BRINGS}"
    library.crossattention_map.argtypes = [ctypes.c_char_p]
    library.crossattention_map.restype = None
    return library


def loaded() -> ctypes.CDLL:
    """Give the library to whoever is about to call it.

    Raises:
        NoKernelError: there is none, and why.

    >>> absent() != "" or loaded() is load()
    True
    """
    library = load()
    if isinstance(library, str):
        raise NoKernelError(f"kernel `native` cannot run: {library}.")
    return library


def absent() -> str:
    """Say why the kernel cannot run at all; empty where it can.

    >>> isinstance(absent(), str)
    True
    """
    library = load()
    return library if isinstance(library, str) else ""


def runs_here(instructions: str) -> bool:
    """Whether the library is there and this processor has the instructions.

    >>> runs_here("portable") or absent() != ""
    True
    """
    library = load()
    if isinstance(library, str) or instructions not in INSTRUCTIONS:
        return False
    return bool(library.crossattention_runs_here(INSTRUCTIONS.index(instructions)))


@cache
def best() -> str:
    """Name the widest instructions of this processor.

    >>> best() in INSTRUCTIONS
    True
    """
    return next((name for name in reversed(INSTRUCTIONS) if runs_here(name)), INSTRUCTIONS[0])


# Found once and put into graphs as they are: what `torch.compiler.assume_constant_result` does,
# which would load torch's compiler with this package.
for _each in (absent, runs_here):
    setattr(_each, "_dynamo_marked_constant", True)  # noqa: B010
