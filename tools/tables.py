"""Measure the cost tables that are shipped: `python tools/tables.py [--quick]`, on an idle machine.

One table for each instruction set, each measured in a process of its own, in which torch and the
native kernel are held to those instructions; a table replaces the shipped one when it is whole.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import torch

from crossattention.cli.tune import QUICK, SECONDS

SETS: dict[str, tuple[str | None, dict[str, str]]] = {  # native's instructions; torch's settings
    "avx512": (None, {}),
    "avx2": ("avx2", {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
                      "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
    "default": ("portable", {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41",
                             "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}),
}  # fmt: skip


def measure(name: str, seconds: float) -> None:
    """Measure one table, in a process whose environment holds torch to its instructions."""
    from crossattention.attention.choose import KERNELS
    from crossattention.attention.tune import tune
    from crossattention.kernels.costs import FOLDER
    from crossattention.kernels.native import Native
    from crossattention.kernels.native.library import absent

    capability = torch.backends.cpu.get_cpu_capability().lower()
    if capability != name or absent():
        sys.exit(f"{name}: torch runs on {capability} here; native: {absent() or 'there'}")
    native = Native(instructions=SETS[name][0])
    kernels = [native if kernel.name == "native" else kernel for kernel in KERNELS]
    tune(seconds, kernels=kernels).write(FOLDER / f"{name}.json")


def main() -> None:
    """Measure all, or the one that a process of its own is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="to see that it works")
    parser.add_argument("--only", choices=SETS)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    seconds = QUICK if given.quick else SECONDS
    if given.only in SETS and os.environ.get("CROSSATTENTION_TABLE") == given.only:
        return measure(given.only, seconds)
    for name, (_, settings) in SETS.items():
        if given.only not in (None, name):
            continue
        start = time.monotonic()
        environment = os.environ | settings | {"CROSSATTENTION_TABLE": name}
        words = [sys.executable, __file__, "--only", name, "--threads", str(given.threads)]
        words += ["--quick"] if given.quick else []
        subprocess.run(words, env=environment, check=True)
        sys.stdout.write(f"{name}: {time.monotonic() - start:.0f} s\n")


if __name__ == "__main__":
    main()
