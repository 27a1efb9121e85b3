"""Memory and Owner: what is kept, who reads it, and what is refused."""

from __future__ import annotations

import threading

import pytest
import torch

import crossattention as xa

OWNERS = ([0, 1, 2], [0, 0, 1, 1, 2, 2], [2, 0, 0, 1, 0, 2], [1, 1], [2, 2, 0], [])


@pytest.mark.parametrize("index", OWNERS, ids=str)
def test_owner_groups_every_query_sequence_once(index: list[int]) -> None:
    owner = xa.Owner.of(torch.tensor(index, dtype=torch.long), memories=3)
    assert owner.per_memory == max([index.count(each) for each in range(3)])
    if owner.slots is None:
        assert index == [each for each in range(3) for _ in range(owner.per_memory)]
        return
    assert owner.place is not None
    flat = owner.slots.flatten()
    assert flat[owner.place].tolist() == list(range(len(index)))
    for sequence, place in enumerate(owner.place.tolist()):
        assert place // owner.per_memory == index[sequence]


def test_owner_refuses_what_does_not_exist() -> None:
    with pytest.raises(xa.ContractError, match="`owner` must be between 0 and 1"):
        xa.Owner.of([0, 2], memories=2)
    with pytest.raises(xa.ContractError, match="between 0 and 1"):
        xa.Owner.of([-1], memories=2)
    with pytest.raises(xa.ContractError, match="integers"):
        xa.Owner.of(torch.tensor([0.0]), memories=2)
    with pytest.raises(xa.ContractError, match="at least 1"):
        xa.Owner.shared(2, 0)


def test_shared_select_compact_equal_a_gather() -> None:
    torch.manual_seed(0)
    layer = xa.CrossAttention(8, 2).double().eval()
    rows = torch.randn(3, 5, 8, dtype=torch.float64)
    lengths = torch.tensor([5, 2, 4])
    for form in ("projected", "raw"):
        memory = layer.remember(rows, lengths, form=form)
        index = torch.tensor([5, 0, 4, 4])
        shared = memory.shared_by(2)
        chosen = shared.select(index)
        sources = torch.tensor([0, 0, 1, 1, 2, 2])[index]
        query = torch.randn(4, 3, 8, dtype=torch.float64)
        wanted = layer(query, layer.remember(rows[sources], lengths[sources], form=form))
        torch.testing.assert_close(layer(query, chosen), wanted)
        compact = chosen.compact()
        assert compact.size == (2, 5)
        assert compact.nbytes < memory.nbytes
        torch.testing.assert_close(layer(query, compact), wanted)
        twice = chosen.shared_by(3)
        tripled = query.repeat_interleave(3, 0)
        torch.testing.assert_close(layer(tripled, twice), wanted.repeat_interleave(3, 0))


def test_bytes_do_not_grow_with_readers() -> None:
    layer = xa.CrossAttention(8, 2)
    memory = layer.remember(torch.randn(3, 5, 8), [5, 2, 4]).without_rows()
    kept = 3 * 5 * 8 * 2 * 4 + 3 * 8 + 3 * 5  # keys and values, lengths, readable
    assert [memory.shared_by(n).nbytes for n in (1, 4, 16)] == [kept] * 3


def test_one_value_for_all_layers() -> None:
    torch.manual_seed(0)
    layers = [xa.CrossAttention(8, 2).eval() for _ in range(3)]
    rows, query = torch.randn(2, 5, 8), torch.randn(4, 3, 8)
    memory: xa.Memory = layers[0].remember(rows, [5, 3])
    for layer in layers[1:]:
        memory = layer.remember(memory)
    both = memory.shared_by(2)
    for layer in layers:
        alone = layer.remember(rows, [5, 3]).shared_by(2)
        assert torch.equal(layer(query, both), layer(query, alone))
    with pytest.raises(xa.ContractError, match="without rows"):
        xa.CrossAttention(8, 2).remember(memory.without_rows())


def test_to_dtype_and_device() -> None:
    torch.manual_seed(0)
    layer = xa.CrossAttention(8, 2).eval()
    memory = layer.remember(torch.randn(2, 5, 8), [5, 3]).shared_by(2)
    query = torch.randn(4, 3, 8)
    half = memory.to(torch.bfloat16)
    assert half.nbytes < memory.nbytes
    found = layer(query, half)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, layer(query, memory), atol=0.05, rtol=0.05)
    assert torch.equal(layer(query, memory.to("cpu")), layer(query, memory))


def test_rows_beyond_lengths_are_cleared_once() -> None:
    rows = torch.full((2, 3, 4), torch.nan)
    memory = xa.Memory.of(rows, [0, 2])
    assert memory.rows is not None
    assert not memory.rows[0].any()
    assert not memory.rows[1, 2].any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": torch.ones(2, 3)}, r"`rows` must be a float tensor \[m, s, c\]"),
        ({"rows": torch.ones(2, 3, 4).long()}, "`rows`"),
        ({"lengths": [4, 1]}, "between 0 and 3"),
        ({"lengths": [-1, 1]}, "between 0 and 3"),
        ({"lengths": [1]}, "one for each of 2 memories"),
        ({"lengths": [1.0, 2.0]}, "integers"),
        ({"value_rows": torch.ones(2, 2, 4)}, "of equal m and s"),
    ],
)
def test_of_refuses(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(xa.ContractError, match=message):
        xa.Memory.of(**{"rows": torch.ones(2, 3, 4), **arguments})


def test_two_threads_read_one_memory() -> None:
    torch.manual_seed(0)
    layer = xa.CrossAttention(8, 2).eval()
    memory = layer.remember(torch.randn(2, 5, 8), [5, 3])
    queries = [torch.randn(2, 3, 8) for _ in range(8)]
    wanted = [layer(query, memory) for query in queries]
    found: list[torch.Tensor | None] = [None] * len(queries)

    def read(start: int) -> None:
        for at in range(start, len(queries), 2):
            found[at] = layer(queries[at], memory)

    threads = [threading.Thread(target=read, args=(start,)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(ours, one) for ours, one in zip(found, wanted, strict=True))


@pytest.mark.parametrize("kernel", ["reference", "matmul", "fused"])
@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_a_memory_that_nobody_reads_may_hold_anything(kernel: str, garbage: float) -> None:
    torch.manual_seed(0)
    query, key = torch.randn(3, 2, 5, 4), torch.randn(3, 2, 7, 4)
    key[1] = garbage
    leaves = [tensor.requires_grad_() for tensor in (query, key)]
    read = xa.attend(query, key, key, owner=[2, 0, 2], kernel=kernel)
    for gradient in torch.autograd.grad(read.sin().sum(), leaves):
        assert bool(gradient.isfinite().all())
    layer = xa.CrossAttention(8, 2)
    rows = torch.randn(3, 5, 8)
    rows[1] = garbage
    for form in ("projected", "raw"):
        memory = layer.remember(rows, form=form).select(torch.tensor([2, 0, 2]))
        layer.kernel = kernel
        output = layer(torch.randn(3, 4, 8), memory)
        for gradient in torch.autograd.grad(output.sin().sum(), list(layer.parameters())):
            assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("kernel", ["matmul", "fused"])
def test_a_memory_that_nobody_reads_hides_nothing_from_those_who_read_others(kernel: str) -> None:
    torch.manual_seed(1)
    query, key = torch.randn(1, 2, 3, 4), torch.randn(2, 2, 5, 4)
    bias = torch.zeros(1, 1, 3, 5)
    bias[..., 0] = -torch.inf  # with the other memory's length, it would hide every row
    options = {"owner": [0], "lengths": [5, 1], "bias": bias}
    query.requires_grad_()
    wanted = xa.attend(query, key, key, **options, kernel="reference")
    found = xa.attend(query, key, key, **options, kernel=kernel)
    torch.testing.assert_close(found, wanted)
    gradients = [torch.autograd.grad(read.sin().sum(), query)[0] for read in (found, wanted)]
    torch.testing.assert_close(*gradients)
