"""K6, row-to-memory identity: each query sequence reads the memory that it names, and no other."""

from __future__ import annotations

import copy
import pickle
import random

import pytest
import torch

import crossattention as xa
from cases.book import Case, decoded, load
from cases.draws import problem
from cases.judge import right
from cases.paths import KERNELS, Path, build, compute, offered
from cases.runner import EVERY_PATH, agree, name

CASES = load("k6_owner")
FORMS = ("projected", "raw")
OWNERS = (
    [0, 1, 2], [0, 0, 1, 1, 2, 2], [2, 0, 0, 1, 0, 2], [1, 1, 1, 1], [2, 2, 0], [1], [2, 1, 0],
)  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_function(case: Case, kernel: str) -> None:
    for dtype in case.dtypes:
        memories = {n: decoded(m, dtype) for n, m in case.inputs["memories"].items()}
        owner = xa.Owner.of(case.inputs["owner"], len(next(iter(memories.values()))["key"]))
        for step, expected in zip(case.inputs["steps"], case.expect["output"], strict=True):
            if "reorder" in step:
                owner = owner.select(torch.tensor(step["reorder"]))
            memory, query = memories[step["use"]], decoded({"query": step["query"]}, dtype)["query"]
            options = {"scale": 1.0, "lengths": memory.get("lengths"), "kernel": kernel}
            found = xa.attend(query, memory["key"], memory["value"], owner=owner, **options)
            tolerance = case.tolerance(dtype) or 0
            right("output", found, torch.tensor(expected, dtype=torch.float64), tolerance)
            repeated = [memory[n][owner.index] for n in ("key", "value")]
            if memory.get("lengths"):
                options["lengths"] = torch.tensor(memory["lengths"])[owner.index]
            torch.testing.assert_close(found, xa.attend(query, *repeated, **options))
        assert owner.index.tolist() == case.expect["owner"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=name)
def test_layer(case: Case, form: str, kernel: str) -> None:
    for dtype in case.dtypes:
        given = {n: decoded(m, dtype) for n, m in case.inputs["memories"].items()}
        first = next(iter(given.values()))
        query = torch.zeros(1, 1, 1, 1, dtype=dtype)
        layer = build({**first, "query": query, "scale": 1.0}, Path(form, kernel))[0].eval()
        memories = {}
        for n, m in given.items():
            memory = layer.remember(m["key"][:, 0], m.get("lengths"), value_rows=m["value"][:, 0],
                                    form=form)  # fmt: skip
            memories[n] = memory.select(torch.tensor(case.inputs["owner"]))
        for step, expected in zip(case.inputs["steps"], case.expect["output"], strict=True):
            if "reorder" in step:
                order = torch.tensor(step["reorder"])
                memories = {n: memory.select(order) for n, memory in memories.items()}
            query = decoded({"query": step["query"]}, dtype)["query"]
            found = layer(query[:, 0], memories[step["use"]])
            wanted = torch.tensor(expected, dtype=torch.float64)[:, 0]
            right("output", found, wanted, case.tolerance(dtype) or 0)
        assert memories["A"].owner.index.tolist() == case.expect["owner"]


@pytest.mark.parametrize("owner", OWNERS, ids=str)
@pytest.mark.parametrize("path", [path for path in EVERY_PATH if path.form != "fresh"], ids=name)
def test_the_output_shows_which_memory_was_read(path: Path, owner: list[int]) -> None:
    torch.manual_seed(17)
    given = problem(b=len(owner), m=3) | {"owner": owner, "lengths": [7, 3, 5]}
    given["value"] = torch.arange(1.0, 4).double()[:, None, None, None].expand(3, 2, 7, 11).clone()
    given["value"][1, :, 3:], given["value"][2, :, 5:] = 100, 100
    wanted = offered(path, ("query", "key", "value"))
    found = compute(given, path, wanted)
    source = torch.tensor(owner).double()[:, None, None, None] + 1
    torch.testing.assert_close(found["output"], source.expand_as(found["output"]))
    index = torch.tensor(owner)
    copies = {n: given[n][index] for n in ("key", "value")}
    copies["lengths"] = torch.tensor([7, 3, 5])[index]
    alone = compute({n: x for n, x in given.items() if n != "owner"} | copies, path, wanted)
    for what in ("key", "value") if wanted else ():
        each, summed = alone["grads"][what], torch.zeros_like(given[what])
        alone["grads"][what] = summed.index_add(0, index, each)
    agree(found, alone)


@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_a_long_history_of_moves(form: str) -> None:
    """Sharing, choosing, dropping and compacting end where a plain list of sources ends."""
    torch.manual_seed(18)
    draw = random.Random(19)
    layer = xa.CrossAttention(8, 2, memory_width=5).double().eval()
    rows = torch.randn(4, 7, 5, dtype=torch.float64)
    memory, sources = layer.remember(rows, [7, 2, 5, 3], form=form), [0, 1, 2, 3]
    for _ in range(40):
        move = draw.choice(["share", "select", "compact", "copy"])
        if move == "share" and len(sources) < 20:
            memory = memory.shared_by(2)
            sources = [source for source in sources for _ in range(2)]
        elif move == "select":
            order = [draw.randrange(len(sources)) for _ in range(draw.randint(1, 9))]
            memory, sources = memory.select(torch.tensor(order)), [sources[i] for i in order]
        elif move == "compact":
            memory = memory.compact()
        else:
            memory = draw.choice([copy.copy, copy.deepcopy, _pickled])(memory)
        query = torch.randn(len(sources), 3, 8, dtype=torch.float64)
        fresh = layer.remember(rows[sources], torch.tensor([7, 2, 5, 3])[sources], form=form)
        torch.testing.assert_close(layer(query, memory), layer(query, fresh))


def _pickled(memory: xa.Memory) -> xa.Memory:
    found: xa.Memory = pickle.loads(pickle.dumps(memory))
    return found


def test_reordering_moves_no_memory() -> None:
    layer = xa.CrossAttention(8, 2).eval()
    memory = layer.remember(torch.randn(3, 5, 8), form="projected").shared_by(4)
    moved = memory.select(torch.tensor([11, 0, 0, 5, 1, 2]))
    for n in ("key", "value"):
        before, after = (getattr(x.contents[layer.number], n) for x in (memory, moved))
        assert before.data_ptr() == after.data_ptr()


@pytest.mark.parametrize(
    ("owner", "message"),
    [
        ([0, 0, 2, 0], "between 0 and 1"),
        ([0, -1, 0, 0], "between 0 and 1"),
        ([0, 1], r"\[b\] = \[4\]"),
    ],
)
def test_an_owner_that_does_not_fit_is_refused(owner: list[int], message: str) -> None:
    given = problem(b=4, m=2)
    streams = [given[n] for n in ("query", "key", "value")]
    for kernel in KERNELS:
        with pytest.raises(xa.ContractError, match=message):
            xa.attend(*streams, owner=owner, kernel=kernel)


@pytest.mark.parametrize("form", FORMS)
def test_a_second_memory_of_one_shape_is_not_the_first(form: str) -> None:
    torch.manual_seed(20)
    layer = xa.CrossAttention(8, 2).double().eval()
    rows = torch.randn(2, 5, 8, dtype=torch.float64)
    query = torch.randn(2, 3, 8, dtype=torch.float64)
    first = layer.remember(rows, form=form)
    before = layer(query, first)
    second = layer.remember(torch.randn_like(rows), form=form)
    assert not torch.allclose(layer(query, second), before)
    assert torch.equal(layer(query, first), before)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_rows_written_over_after_remembering(form: str, padded: bool) -> None:
    """A buffer that is filled again is never read for the rows that it held."""
    torch.manual_seed(21)
    layer, later = (xa.CrossAttention(8, 2).double().eval() for _ in range(2))
    buffer = torch.randn(2, 5, 8, dtype=torch.float64)
    lengths, order = torch.tensor([5, 3]), torch.tensor([1, 0, 1])
    query = torch.randn(3, 3, 8, dtype=torch.float64)
    memory = layer.remember(buffer, lengths if padded else None, form=form).select(order)
    before = layer(query, memory)
    buffer.normal_()
    lengths.zero_()
    order.zero_()
    if form == "raw" and not padded:  # the memory holds the buffer itself
        for moved in (memory, memory.shared_by(1), memory.select(torch.tensor([0, 1, 2]))):
            with pytest.raises(xa.ContractError, match="`rows` must be as they were"):
                layer(query, moved)
    else:
        assert torch.equal(layer(query, memory), before)
        assert memory.lengths is None or memory.lengths.tolist() == [5, 3]
    if not padded:
        with pytest.raises(xa.ContractError, match="`rows` must be as they were"):
            later.remember(memory, form="projected")
        with pytest.raises(xa.ContractError, match="`rows` must be as they were"):
            memory.to(torch.float32)


def test_an_owner_does_not_follow_the_tensor_it_came_from() -> None:
    index = torch.tensor([2, 0, 0, 1])
    owner = xa.Owner.of(index, 3)
    index.zero_()
    assert owner.index.tolist() == [2, 0, 0, 1]
