"""How fast each kernel is, by dtype: the table from which the automatic choice is made.

    seconds = overhead + multiply_adds·a + bytes·b + pieces·p + scores·w

One table is shipped for each instruction set, `tables/*.json`. Nothing is measured behind the
user's back, so all ranks of a job choose alike; `crossattention tune` measures another table, which
is used where it is named and nowhere else. Only the ratios between kernels count.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from crossattention.errors import ContractError, complaint, describe
from crossattention.kernels.contract import Cost

FOLDER = Path(__file__).parent / "tables"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NEEDED = ("reference", "matmul")  # those that refuse nothing: one of them can always be chosen


@dataclass(frozen=True)
class Rate:
    """What a kernel costs to start and to run.

    Attributes:
        overhead: seconds of one call.
        multiply_adds, bytes: how many a second.
        piece, score: seconds of each.

    >>> Rate(0.5, 1e9, 1e9, 0.25, 0.0).seconds(Cost(multiply_adds=0, bytes=0, pieces=2))
    1.0
    """

    overhead: float
    multiply_adds: float
    bytes: float
    piece: float
    score: float

    def seconds(self, cost: Cost) -> float:
        """Estimate a run's time.

        >>> Rate(0.0, 1e9, 1e9, 0.0, 0.0).seconds(Cost(multiply_adds=0, bytes=10**9))
        1.0
        """
        work = cost.multiply_adds / self.multiply_adds + cost.bytes / self.bytes
        return self.overhead + work + cost.pieces * self.piece + cost.scores * self.score


Rates = Mapping[torch.dtype, Mapping[str, Rate]]


@dataclass(frozen=True, eq=False)
class Table:
    """The rates of kernels on one kind of machine, by dtype and the kernel's name.

    Attributes:
        name: what `explain` calls it.
        rates: for float32, bfloat16 and float16; float64 goes by those of float32.

    >>> SHIPPED.seconds("matmul", torch.float32, Cost(1000, 1000)) > 0
    True
    """

    name: str
    rates: Rates

    def seconds(self, kernel: str, dtype: torch.dtype, cost: Cost) -> float:
        """Estimate a run's time; NaN, never the least, for a kernel that it does not know.

        >>> SHIPPED.seconds("a kernel of your own", torch.float32, Cost(1000, 1000))
        nan
        """
        rates = self.rates[dtype if dtype in DTYPES else torch.float32]
        return rates[kernel].seconds(cost) if kernel in rates else math.nan

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """Read a table that `crossattention tune` wrote.

        Raises:
            ContractError: there is no such file, or it holds no table.

        >>> Table.read(FOLDER / "default.json").name
        'default.json'
        """
        path = Path(path)
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            rates = {dtype: _rates(held["rates"][_named(dtype)]) for dtype in DTYPES}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            want, do = "a file that `crossattention tune` wrote", "write it anew"
            said = error.strerror if isinstance(error, OSError) else repr(error)
            given = f"{str(path)!r} ({said})"
            raise ContractError(complaint("table", want, given, do)) from None
        return cls(path.name, rates)

    def write(self, path: str | Path) -> None:
        """Write the table as JSON, to four digits; the file is there whole or not at all.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     SHIPPED.write(Path(folder) / "mine.json")
        ...     Table.read(Path(folder) / "mine.json").rates == SHIPPED.rates
        True
        """
        path = Path(path)
        held = {
            _named(dtype): {kernel: _written(rate) for kernel, rate in rates.items()}
            for dtype, rates in self.rates.items()
        }
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(json.dumps({"rates": held}, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, path)


def shipped() -> Table:
    """Read the shipped table of the instructions that torch runs on here.

    >>> shipped().name in ("avx512, shipped", "avx2, shipped", "default, shipped")
    True
    """
    capability = torch.backends.cpu.get_cpu_capability().lower()
    name = capability if capability in ("avx512", "avx2") else "default"
    return Table(f"{name}, shipped", Table.read(FOLDER / f"{name}.json").rates)


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _written(rate: Rate) -> dict[str, float]:
    return {name: float(f"{number:.4g}") for name, number in asdict(rate).items()}


def _rates(held: Mapping[str, Mapping[str, object]]) -> dict[str, Rate]:
    rates = {kernel: _rate(numbers) for kernel, numbers in held.items()}
    missing = [kernel for kernel in NEEDED if kernel not in rates]
    if missing:
        raise ValueError(f"no rate of kernel {missing[0]}")
    return rates


def _rate(numbers: Mapping[str, object]) -> Rate:
    names = [field.name for field in fields(Rate)]
    if sorted(numbers) != sorted(names):
        raise ValueError(f"a rate has {', '.join(names)}")
    found = {}
    for name, number in numbers.items():
        divides = name in ("multiply_adds", "bytes")
        if not isinstance(number, float) or not 0 <= number < math.inf or (divides and not number):
            raise ValueError(f"{name} is {describe(number)}")
        found[name] = number
    return Rate(**found)


SHIPPED = shipped()
