"""Say which form a layer's memory would take, what each costs over its life, and where that flips.

    R* = projecting / (a raw read's work - a projected read's)        work: as in `nn.form`

Up to R* reads over its life, a memory is cheaper raw; beyond, projected. The kernels that would
then read it are explained for each form, on tensors that hold no numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from crossattention.argument import FLOATS, check_size
from crossattention.attention.cheapest import Cheapest
from crossattention.attention.explain import Explanation, explain_problem
from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Problem, Score
from crossattention.kernels.costs import SHIPPED, Table
from crossattention.mask import Mask
from crossattention.nn.form import Life, choose_form, form_costs
from crossattention.nn.sizes import Sizes
from crossattention.owner import Owner


@dataclass(frozen=True)
class Reads:
    """Describe how a decoder reads its memories.

    Attributes:
        queries, memory: t and s, rows of one query sequence in one read, and rows of one memory.
        width, heads, memory_heads: c, h and g of each layer; g None: h.
        batch, beams: memories, and query sequences that read each.
        layers: how many layers read the same rows.
        life: query rows that will read each memory in all; None: one read's, queries · beams.

    >>> Reads(queries=1, memory=1500, width=512, heads=8, beams=5).over_life
    5
    """

    queries: int
    memory: int
    width: int
    heads: int
    memory_heads: int | None = None
    batch: int = 1
    beams: int = 1
    layers: int = 1
    life: int | None = None

    def __post_init__(self) -> None:
        names = ("queries", "memory", "width", "heads", "batch", "beams", "layers")
        for name in (*names, "memory_heads", "life"):
            given = getattr(self, name)
            if given is not None or name in names:
                check_size(name, given, 1, "raise it")
        _ = self.sizes  # heads that do not divide raise here
        if self.life is not None and self.life < self.queries * self.beams:
            want = f"at least one read's {self.queries * self.beams} query rows"
            raise ContractError(complaint("life", want, str(self.life), "count all reads"))

    @property
    def sizes(self) -> Sizes:
        """The sizes of each layer."""
        return Sizes.of(self.width, self.heads, None, (None, None), self.memory_heads)

    @property
    def over_life(self) -> int:
        """N, the query rows that will read each memory."""
        return self.queries * self.beams if self.life is None else self.life

    @property
    def over_reads(self) -> int:
        """R, how many reads those rows come in."""
        return math.ceil(self.over_life / (self.queries * self.beams))


@dataclass(frozen=True)
class FormCost:
    """What one form of all memories costs, over all layers.

    Attributes:
        name: "projected" or "raw".
        multiply_adds, numbers, calls: over the memories' life, as `Work` counts them.
        work: all three, in multiply-adds that would take as long; the form with less is chosen.
        bytes: kept while they live.
        kernels: what each kernel says of one read by one layer.
    """

    name: str
    multiply_adds: int
    numbers: int
    calls: int
    work: int
    bytes: int
    kernels: Explanation


@dataclass(frozen=True)
class FormExplanation:
    """Both forms, the one chosen, and up to how many query rows over a life raw takes less work.

    Attributes:
        forms, chosen: projected and raw, and the name of one.
        flips_at: those rows, in whole reads.
    """

    forms: tuple[FormCost, ...]
    chosen: str
    flips_at: int


def explain_forms(
    reads: Reads, dtype: torch.dtype = torch.float32, table: Table = SHIPPED
) -> FormExplanation:
    """Explain the choice that `CrossAttention.remember` makes, for layers with plain projections.

    Args:
        reads: who reads what, how often.
        dtype: of rows, keys and values.
        table: by which kernels are chosen.
    Raises:
        ContractError: a dtype that does not compute attention.

    >>> found = explain_forms(Reads(queries=1, memory=1500, width=512, heads=8))
    >>> found.chosen, found.flips_at
    ('raw', 35)
    """
    if dtype not in FLOATS:
        do = "pass torch.float32, say"
        raise ContractError(complaint("dtype", f"one of {FLOATS}", str(dtype), do))
    sizes = reads.sizes
    g, d = sizes.memory_heads, sizes.key_width
    life = Life(reads.batch, reads.memory, reads.over_life, reads.over_reads, dtype)
    costs, layers = form_costs(life, sizes), reads.layers
    row = dtype.itemsize * reads.batch * reads.memory
    kept = {"projected": row * reads.layers * 2 * g * d, "raw": row * reads.width}
    shapes = {"projected": (g, d), "raw": (1, reads.width)}
    forms = tuple(
        FormCost(
            name, layers * cost.multiply_adds, layers * cost.numbers, layers * cost.calls,
            layers * cost.total, kept[name], _kernels(reads, shapes[name], dtype, table),
        )
        for name, cost in costs.items()
    )  # fmt: skip
    return FormExplanation(forms, choose_form("auto", costs, []), _flip(reads, life))


def _flip(reads: Reads, life: Life) -> int:
    """Find the most reads in which raw takes less, in rows: work is a straight line in reads."""
    each = reads.queries * reads.beams
    none, one = (
        form_costs(life._replace(queries=count * each, reads=count), reads.sizes)
        for count in (0, 1)
    )
    ahead = none["projected"].total - none["raw"].total
    behind = (one["raw"].total - none["raw"].total) - (
        one["projected"].total - none["projected"].total
    )
    return each * ((ahead - 1) // behind)


def _kernels(reads: Reads, shape: tuple[int, int], dtype: torch.dtype, table: Table) -> Explanation:
    """Ask the kernels about one read by one layer: g heads of keys and values of one width."""
    heads, width = shape
    sequences = reads.batch * reads.beams
    query = torch.empty(
        sequences, reads.heads, reads.queries, width, dtype=dtype, device="meta"
    )  # [b, h, t, d]
    rows = torch.empty(reads.batch, heads, reads.memory, width, dtype=dtype, device="meta")
    owner = None
    if reads.beams > 1:
        index = torch.arange(reads.batch).repeat_interleave(reads.beams)  # [m] -> [b]
        owner = Owner.of(index, reads.batch)
    scale = (reads.width // reads.heads) ** -0.5
    return explain_problem(Problem(query, rows, rows, owner, Mask(), Score(scale)), Cheapest(table))
