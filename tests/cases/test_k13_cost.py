"""K13, cost: bytes and calls are counted, and do not grow with beams or steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import crossattention as xa
from cases.book import Case, find, load
from cases.judge import right
from cases.paths import KERNELS, LAYERS, Path, build, count_calls
from cases.runner import check, every_form, name

CASES = load("k13_cost")
PROJECTIONS = ("query_projection", "key_projection", "value_projection")
STORED = [case for case in CASES if "cost" in case.inputs]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


@pytest.mark.parametrize("form", LAYERS[:2])
@pytest.mark.parametrize("case", STORED, ids=name)
@torch.no_grad()
def test_bytes_do_not_grow_with_beams(case: Case, form: str) -> None:
    cost, dtype = case.inputs["cost"], torch.float16
    width = cost["heads"] * cost["key_width"]
    layer = xa.CrossAttention(width, cost["heads"], bias=False).to(dtype)
    rows = torch.zeros(cost["memories"], cost["rows"], width, dtype=dtype)
    memory = layer.remember(rows, form=form).select(torch.tensor(case.inputs["owner"]))
    if form == "projected":
        memory = memory.without_rows()  # one layer has read them: nobody else will
    assert memory.sequences == len(case.inputs["owner"])
    assert memory.nbytes <= case.expect["bytes"] * (1 + case.expect["tolerance_bytes"])


class Allocated(TorchDispatchMode):
    """Count the bytes of new storages that operations return while it is on."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Any] = {}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and weigh the tensors that it returns."""
        given = [x for x in args if isinstance(x, torch.Tensor)]
        self.seen |= {x.untyped_storage().data_ptr(): x for x in given}
        found = func(*args, **(kwargs or {}))
        for x in found if isinstance(found, tuple | list) else [found]:
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in self.seen:
                self.seen[x.untyped_storage().data_ptr()] = x
                self.bytes += x.untyped_storage().nbytes()
        return found


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != "reference"])
@pytest.mark.parametrize("form", LAYERS[:2])
@torch.no_grad()
def test_a_step_allocates_nothing_as_wide_as_the_memory(form: str, kernel: str) -> None:
    """Scores are allocated (b · h · s numbers), keys and values (m · s · c) never again."""
    s, c = 512, 64
    layer = xa.CrossAttention(c, 2).eval()
    layer.kernel = kernel
    memory = layer.remember(torch.randn(3, s, c), [s, s - 1, 7], form=form)
    for beams in (1, 4, 16):
        shared = memory.shared_by(beams).select(torch.randperm(3 * beams))
        query = torch.randn(3 * beams, 1, c)
        with Allocated() as counted:
            layer(query, shared)
        scores = 4 * 3 * beams * 2 * s
        narrow = 40 * 4 * 3 * beams * 2 * c * shared.owner.per_memory // beams
        assert counted.bytes < 8 * scores * shared.owner.per_memory / beams + narrow + 2**16


@pytest.mark.parametrize("case", [case for case in CASES if case.id == "C48"], ids=name)
def test_five_reads_project_once(case: Case) -> None:
    for dtype in case.dtypes:
        given = case.tensors(dtype)
        layer, query, rows, _ = build(given, Path("projected"))
        calls = count_calls(layer, PROJECTIONS)
        memory = layer.remember(rows, given["lengths"])
        outputs = [layer(step, memory) for step in query.split(1, 1)]
        found = torch.cat(outputs, 1).unflatten(2, (3, -1)).transpose(1, 2)
        right("output", found, case.expected("output"), case.tolerance(dtype) or 0)
        assert calls == case.expect["counts"]
        layer(query, layer.remember(rows.flip(1), given["lengths"]))
        assert (calls["key_projection"], calls["value_projection"]) == (2, 2)


def test_moving_and_sharing_project_nothing() -> None:
    layer = xa.CrossAttention(8, 2).eval()
    calls = count_calls(layer, PROJECTIONS)
    memory = layer.remember(torch.randn(3, 5, 8), form="projected")
    for step in range(4):
        memory = memory.shared_by(2).select(torch.arange(memory.sequences)).compact()
        layer.weights(torch.randn(memory.sequences, 1, 8), memory)
        assert calls["key_projection"] == calls["value_projection"] == 1, step


def test_one_memory_serves_five_sequences_without_a_copy() -> None:
    torch.manual_seed(44)
    given = find(CASES, "C48").tensors(torch.float64)
    layer, query, rows, _ = build(given, Path("projected"))
    memory = layer.remember(rows[:1]).select(torch.zeros(5, dtype=torch.long))
    stream = torch.randn(5, 4, query.shape[2], dtype=torch.float64)
    copied = layer.remember(rows[:1].expand(5, -1, -1).contiguous())
    torch.testing.assert_close(layer(stream, memory), layer(stream, copied))
    assert memory.nbytes < copied.nbytes / 2
