"""The library's own kernel for the CPU, for inference: each memory row is loaded once for several
query rows that wait in registers.

    scores = query · key, weights = softmax, value = weights · value, one block of rows at a time

Storage is float32, bfloat16 or float16, arithmetic float32. Query sequences that share a memory
meet it together, loops end at each memory's length, and rows that a query may not read are never
multiplied for it. It obeys laws 1, 3 to 8 and 10.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.autograd import forward_ad

from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Cost, Problem, Reading
from crossattention.kernels.count import products, touches, traffic
from crossattention.kernels.native.call import Given, Layout, number
from crossattention.kernels.native.library import INSTRUCTIONS, absent, runs_here
from crossattention.kernels.native.registered import read

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Native:
    """Compute with the compiled kernel.

    Attributes:
        instructions: "portable", "avx2", "avx512" or "avx512bf16" to force an instruction set; None
            takes the widest of this processor.

    >>> Native().name
    'native'
    """

    name: str = "native"
    instructions: str | None = None
    skips_hidden = True  # it meets no hidden row, and finds for itself who reads nothing

    def __post_init__(self) -> None:
        """Check the name of the instruction set."""
        if self.instructions not in (None, *INSTRUCTIONS):
            want = " or ".join(f'"{each}"' for each in INSTRUCTIONS)
            do = "pass None for the widest of this processor"
            given = repr(self.instructions)
            raise ContractError(complaint("instructions", want, given, do))

    def refuses(self, problem: Problem) -> list[str]:
        """List what it lacks: a library, another device than the CPU, gradients, dropout."""
        missing = absent()
        if missing:
            return [missing]
        dtypes = [each.dtype for each in (problem.query, problem.key, problem.value)]
        named = self.instructions
        reasons = {
            "it runs on the CPU only": problem.query.device.type not in ("cpu", "meta"),
            "it has no gradient": problem.wants_gradient,
            "it runs outside torch.func and forward differentiation": is_transformed(),
            "it has no dropout": problem.dropout > 0,
            "it reads float32, bfloat16 and float16": any(each not in _DTYPES for each in dtypes),
            f"this processor has no {named}": named is not None and not runs_here(named),
        }
        return [words for words, refused in reasons.items() if refused]

    def cost(self, problem: Problem) -> Cost:
        """Count the products, and each row once for 48 query rows; pieces are such tiles."""
        b, m, h, g, t, _, _, _ = problem.sizes
        rows = -(-(b * h * t) // max(m * g, 1))  # query rows of each memory and memory head
        tiles = -(-rows // 48)
        item = problem.key.element_size()
        again = item * (problem.key.numel() + problem.value.numel()) * max(tiles - 1, 0)
        read = traffic(problem) + again
        return Cost(products(problem), read, m * g * tiles, touches(problem))

    def layout(self, problem: Problem) -> Layout | None:
        """Write down what problems like this one share; None where more than addresses decides.

        That is where a bias must be converted, and where numbers lie elsewhere or nowhere.
        """
        given, score = _given(problem), problem.score
        if not (given.query.is_cpu and (given.owner is None or given.owner.is_cpu)):
            return None
        if given.bias is not problem.mask.bias or given.offset is not None:
            return None
        return Layout.of(given, score.softcap or 0.0, number(self.instructions))

    def run(self, problem: Problem) -> Reading:
        """Compute."""
        score, how = problem.score, (problem.wants_lse, number(self.instructions))
        return Reading(*read(_given(problem), score.scale, score.softcap or 0.0, *how))


def _given(problem: Problem) -> Given:
    """Say what a problem brings; biases and offsets in a dtype that the library reads."""
    query, key, value, owner, mask, score, _, wants_lse = problem
    bias = mask.bias
    offset = score.offset if wants_lse or score.softcap is not None else None  # who else sees it?
    rows = mask.rows if mask.lengths is None else mask.lengths
    if bias is not None and bias.dtype not in _DTYPES:
        bias = bias.float()
    if offset is not None and offset.dtype not in _DTYPES:
        offset = offset.float()
    index = None if owner is None else owner.index
    return Given(query, key, value, rows, mask.visible, bias, offset, index)


def is_transformed() -> bool:
    """Whether a function transform or forward differentiation follows what is computed.

    >>> is_transformed()
    False
    """
    if torch.compiler.is_compiling():
        return False  # the operator is put into the graph, and the graph's own rules hold
    level: int | None = torch._C._functorch.maybe_current_level()
    return level is not None or forward_ad._current_level >= 0
