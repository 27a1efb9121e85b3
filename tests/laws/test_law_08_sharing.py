"""Law 8. A shared memory gives what copies of it would, and is never copied.

`shared_by(n)` equals n copies of each memory; `select` equals a gather; what one step allocates for
a memory is scores: neither beams nor widths multiply it.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import crossattention as xa
from laws import modules
from laws.given import Sizes, build
from laws.table import EXACT, FORMS, HEADS, Case

LENGTHS = torch.tensor([11, 0, 5])
INDEX = ([5, 0, 4, 4, 1], [3, 3, 3], [0, 1, 2, 3, 4, 5], [2], [])


def made(heads: str, device: torch.device) -> tuple[xa.CrossAttention, Tensor, Tensor]:
    torch.manual_seed(1)
    layer = build(Sizes.of(Case(heads=heads))).to(device)
    rows = torch.randn(3, 11, 23, dtype=torch.float64, device=device)
    return layer, rows, torch.randn(6, 7, 19, dtype=torch.float64, device=device)


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", EXACT)
def test_sharing_equals_copies(kernel: str, form: str, heads: str, device: torch.device) -> None:
    layer, rows, query = made(heads, device)
    layer.kernel = kernel
    memory = layer.remember(rows, LENGTHS, form=form).shared_by(2)
    copied = torch.tensor([0, 0, 1, 1, 2, 2])
    copies = layer.remember(rows[copied], LENGTHS[copied], form=form)
    wanted = layer(query, copies)
    torch.testing.assert_close(layer(query, memory), wanted, atol=1e-12, rtol=1e-12)
    for index in INDEX:
        chosen = torch.tensor(index, dtype=torch.int64, device=device)
        kept = memory.select(chosen)
        gathered = layer.remember(rows[copied[index]], LENGTHS[copied[index]], form=form)
        asked = query[chosen]
        found = layer(asked, kept)
        torch.testing.assert_close(found, layer(asked, gathered), atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(layer(asked, kept.compact()), found, atol=1e-12, rtol=1e-12)
        tripled, again = asked.repeat_interleave(3, 0), found.repeat_interleave(3, 0)
        torch.testing.assert_close(layer(tripled, kept.shared_by(3)), again, atol=1e-12, rtol=1e-12)


class Allocations(TorchDispatchMode):
    """Sum the bytes of every storage that an operation returns and was not given."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {place(x) for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)}
        for new in tree_leaves(result):
            if isinstance(new, Tensor) and place(new) not in given:
                self.bytes += new.untyped_storage().nbytes()
        return result


def place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def allocated(kernel: str, form: str, beams: int, s: int, width: int) -> int:
    layer = xa.CrossAttention(width, 3).eval()
    layer.kernel = kernel
    with torch.inference_mode():
        lengths = [s, s - 4]
        memory = layer.remember(torch.randn(2, s, width), lengths, form=form).shared_by(beams)
        with Allocations() as counted:
            layer(torch.randn(2 * beams, 1, width), memory)
    return counted.bytes


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kernel", ["matmul", "fused"])
@pytest.mark.parametrize("beams", [1, 5, 17])
def test_a_step_allocates_scores_alone(beams: int, kernel: str, form: str) -> None:
    grown = [
        allocated(kernel, form, beams, 31 + 256, width) - allocated(kernel, form, beams, 31, width)
        for width in (12, 96)
    ]
    scores = 4 * 2 * beams * 3 * 256  # one pass over the scores of the rows that were added
    assert grown[0] == grown[1]
    assert grown[0] <= 4 * scores + 16 * 2 * 256


@pytest.mark.parametrize("form", FORMS)
def test_readers_add_no_bytes(form: str) -> None:
    layer, rows, _ = made("each", torch.device("cpu"))
    memory = layer.remember(rows, LENGTHS, form=form)
    assert {memory.shared_by(n).nbytes for n in (1, 3, 17)} == {memory.nbytes}
    kept = memory.shared_by(17).select(torch.tensor([1, 50, 1]))
    assert kept.contents[layer.number].key is memory.contents[layer.number].key
    assert kept.rows is memory.rows


@pytest.mark.parametrize(("subject", "form"), modules.PAIRS, ids=modules.NAMES)
def test_modules_share_memories(subject: modules.Subject, form: str) -> None:
    module, (query, rows) = subject.build(), modules.given()
    memory = subject.remember(module, rows, modules.LENGTHS[1], form)
    output = subject.read(module, query, memory)
    shared = modules.each(memory, lambda x: x.shared_by(2))
    twice = subject.read(module, query.repeat_interleave(2, 0), shared)
    torch.testing.assert_close(twice, output.repeat_interleave(2, 0))
    index = torch.tensor([2, 0, 0, 2])
    chosen = modules.each(memory, lambda x: x.select(index).compact())
    torch.testing.assert_close(subject.read(module, query[index], chosen), output[index])
