"""What an adopter must be able to do, and what it leaves on a model so that it can be undone.

An adopter knows one kind of model. It changes the model in place, through the model's own extension
points, and hands back a record with which `release` restores exactly what was there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import nn

from crossattention.argument import check_size


@dataclass(frozen=True)
class Decode:
    """Describe a decode whose cost is asked for.

    Attributes:
        batch, beams, tokens: sources, hypotheses of each, and tokens that each will write.
        rows: memory rows of one source; None lets the adopter take the model's longest.

    >>> Decode(batch=4, beams=5, tokens=20).queries
    100
    """

    batch: int = 1
    beams: int = 1
    tokens: int = 64
    rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch", "beams", "tokens"):
            check_size(name, getattr(self, name), 1, "raise it")
        if self.rows is not None:
            check_size("rows", self.rows, 1, "pass None for the model's longest source")

    @property
    def queries(self) -> int:
        """Query rows that read one memory over its life: beams · tokens."""
        return self.beams * self.tokens


@dataclass(frozen=True)
class Bill:
    """What reading memories costs in one way of doing it, over all layers and a whole decode.

    Attributes:
        name: "stock", "projected" or "raw".
        multiply_adds: of projecting and reading memories; the rest of the model is not counted.
        work: those and what takes as long: calls, and numbers moved (see `nn.form`).
        bytes: kept for reading, while the decode lasts.
    """

    name: str
    multiply_adds: int
    work: int
    bytes: int


@dataclass(frozen=True)
class ModelExplanation:
    """The bills of a model as it is and of each form it could be adopted in, and the one chosen.

    >>> bills = (
    ...     Bill("stock", 20 * 10**8, 22 * 10**8, 5 * 10**6),
    ...     Bill("projected", 9 * 10**8, 10**9, 10**6),
    ... )
    >>> print(ModelExplanation("a tiny model", bills, "projected"))
    a tiny model       multiply-adds        work       bytes
      stock                 2.00 G      2.20 G      5.00 MB
      projected             0.90 G      1.00 G      1.00 MB  <- chosen
    """

    model: str
    bills: tuple[Bill, ...]
    chosen: str

    def __str__(self) -> str:
        lines = [f"{self.model:18s} multiply-adds        work       bytes"]
        for bill in self.bills:
            mark = "  <- chosen" if bill.name == self.chosen else ""
            each, work, size = bill.multiply_adds / 1e9, bill.work / 1e9, bill.bytes / 1e6
            counts = f"{each:9.2f} G {work:9.2f} G  {size:8.2f} MB"
            lines.append(f"  {bill.name:16s} {counts}{mark}")
        return "\n".join(lines)


class Adoption(Protocol):
    """What was done to a model; it is kept on the model, so it copies and pickles with it.

    It must not hold the model itself: a copy of a model is released by the copied record.
    """

    def undo(self, model: nn.Module) -> None:
        """Give the model back exactly what it had."""
        ...


class Adopter(Protocol):
    """One kind of model that can be adopted; it imports the model's library only when called.

    `kinds` names, for an error message, the models it knows.
    """

    @property
    def kinds(self) -> tuple[str, ...]:
        """The models it knows, by the names people use for them."""
        ...

    def knows(self, model: nn.Module) -> bool:
        """Whether it is for this model, told from the names of the model's classes and modules."""
        ...

    def adopt(self, model: nn.Module, form: str) -> Adoption:
        """Change the model in place; raise before anything has changed if that cannot be done.

        Args:
            model: a model it knows, not adopted now.
            form: "auto", "projected" or "raw", checked.
        """
        ...

    def explain(self, model: nn.Module, decode: Decode) -> ModelExplanation:
        """Bill the model as it is and as adopted; raise where it has nothing to bill."""
        ...
