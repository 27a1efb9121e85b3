"""Compile the native kernel: `python -m crossattention.kernels.native.build`.

The same source is compiled once for each instruction set and linked into one library, which lies
beside this file. Nothing but Python and a C++ compiler is needed, and nothing is compiled unless
this is run. It imports nothing of the package, so that the package's build can run it as a file.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "source"
LIBRARY = "crossattention_native.so"
FLAGS = (
    "-std=c++17", "-fPIC", "-fopenmp", "-fvisibility=hidden", "-fno-math-errno",
    "-fno-trapping-math", "-ffp-contract=fast", "-Wall", "-Wextra",
)  # fmt: skip
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (
    *AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512",
)  # fmt: skip
SETS = {
    "portable": (), "avx2": AVX2, "avx512": AVX512, "avx512bf16": (*AVX512, "-mavx512bf16"),
}  # fmt: skip
SANITIZE = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def compiler() -> str | None:
    """Find a C++ compiler: what `CXX` names, or g++ or c++.

    >>> compiler() is None or isinstance(compiler(), str)
    True
    """
    named = os.environ.get("CXX")
    for name in (named,) if named else ("g++", "c++"):
        if name and shutil.which(shlex.split(name)[0]):
            return name
    return None


def fingerprint() -> str:
    """Name the source and its flags, so that a library of another source is not loaded.

    >>> len(fingerprint())
    16
    """
    told = hashlib.sha256(repr((FLAGS, SETS)).encode())
    for path in sorted(SOURCE.iterdir()):
        told.update(path.name.encode() + path.read_bytes())
    return told.hexdigest()[:16]


def build(out: Path, sanitize: bool = False, mutant: int = 0) -> None:
    """Compile and link the library to `out`.

    Args:
        out: where the library goes; it is replaced only when all went well.
        sanitize: watch for wrong addresses and undefined behaviour, at a tenth of the speed.
        mutant: the number of a deliberate fault, for tests that must notice it; such a library
            has portable instructions only. 0: none.
    Raises:
        RuntimeError: there is no compiler, or it failed; with what it said.
    """
    tool = compiler()
    if tool is None:
        raise RuntimeError("no C++ compiler was found (g++ or c++); install one, or set CXX")
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    flags = [*FLAGS, *(SANITIZE if sanitize else ("-O1",) if mutant else ("-O3",))]
    flags.append(f"-DCROSSATTENTION_MUTANT={mutant}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        parts = {
            "native": ("native.cpp", (f'-DCROSSATTENTION_SOURCE="{fingerprint()}"',)),
            **{
                f"{verb}-{name}": (f"{verb}.cpp", (*more, f"-DCROSSATTENTION_SET={name}"))
                for verb in ("read", "map")
                for name, more in SETS.items()
                if (x86 and not mutant) or not more
            },
        }
        jobs = []
        for name, (file, more) in parts.items():
            target = ["-c", str(SOURCE / file), "-o", f"{folder}/{name}.o"]
            given = (*more, "-DCROSSATTENTION_X86") if x86 and not mutant else more
            jobs.append(_start([*shlex.split(tool), *flags, *given, *target]))
        for job in jobs:
            _finish(job)
        objects = [f"{folder}/{name}.o" for name in parts]
        linked = f"{folder}/{LIBRARY}"
        _finish(_start([*shlex.split(tool), *flags, "-shared", *objects, "-o", linked]))
        os.replace(linked, out)


def main(arguments: list[str] | None = None) -> int:
    """Build from the command line; 0, or 1 with the reason on the error stream.

    An optional library that cannot be built is said to be missing, and is no failure.
    """
    parser = argparse.ArgumentParser(prog="build", description="Compile the native kernel.")
    parser.add_argument("--out", type=Path, default=FOLDER / LIBRARY, help="the library's file")
    parser.add_argument("--sanitize", action="store_true", help="watch addresses, undefined code")
    parser.add_argument("--mutant", type=int, default=0, help="a deliberate fault, for tests")
    parser.add_argument("--optional", action="store_true", help="succeed without")
    given = parser.parse_args(arguments)
    try:
        build(given.out, given.sanitize, given.mutant)
    except (RuntimeError, OSError) as error:
        sys.stderr.write(f"The native kernel was not built: {error}\n")
        return 0 if given.optional else 1
    return 0


def _start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _finish(job: subprocess.Popen[str]) -> None:
    said, _ = job.communicate()
    if job.returncode:
        raise RuntimeError(f"the compiler failed.\n{said}")


if __name__ == "__main__":
    sys.exit(main())
