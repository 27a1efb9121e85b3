"""One run: how long it may take, with how many threads, and which peers are there.

A peer that cannot be imported is noted with its reason, and whoever asks is told; nothing is left
out in silence.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from types import ModuleType

import torch

PEERS = ("transformers", "ctranslate2", "x_transformers", "timm")


@dataclass
class Run:
    """Say how to measure, and collect which peers are missing.

    Attributes:
        quick: measure a few rows only, shortly: to see that all works, not to quote.
        threads: of torch and of every peer.
        equality: compare what adopted models write instead of timing them.
        missing: "name: reason", for each peer that a question asked for in vain.
    """

    quick: bool = False
    threads: int = 2
    equality: bool = False
    missing: list[str] = field(default_factory=list)
    _told: float = 0.0

    def peer(self, name: str) -> ModuleType | None:
        """Import a peer, or a module of one; None, and a note in `missing`, where that fails."""
        try:
            return importlib.import_module(name)
        except Exception as error:  # a broken installation raises anything
            note = f"{name.partition('.')[0]}: {error}".splitlines()[0]
            if note not in self.missing:
                self.missing.append(note)
            return None

    def seconds(self, full: float, quick: float = 0.02) -> float:
        """Choose how long the turns of one row take."""
        return quick if self.quick else full

    def tell(self, message: str) -> None:
        """Show progress on stderr, about once a second."""
        if monotonic() - self._told > 1:
            self._told = monotonic()
            print(message, file=sys.stderr, flush=True)


def machine(threads: int) -> dict[str, object]:
    """Describe the machine and the versions that were measured."""
    names = ("crossattention", "torch", *PEERS)
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "last_level_cache_bytes": last_level_cache(),
        "load": list(os.getloadavg()),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in names},
    }


def last_level_cache() -> int:
    """Give the bytes of the last-level cache; 32 MiB where the system does not say."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    found = [path.read_text().strip() for path in sizes]
    return max((int(text[:-1]) * units[text[-1]] for text in found), default=2**25)


def peak_bytes(*, reset: bool = False) -> int | None:
    """Give the most memory this process held since the last reset; None where no one counts."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    (line,) = (each for each in status.splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
