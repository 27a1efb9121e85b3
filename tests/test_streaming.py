"""A memory that grows: chunked equals whole, older values stay valid, replaced ones are refused."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor

import crossattention as xa
from crossattention.nn import Rotary

FORMS = ("projected", "raw")
CHUNKS = (3, 1, 0, 7, 2)


def layer(seed: int = 0) -> xa.CrossAttention:
    torch.manual_seed(seed)
    made = xa.CrossAttention(8, 2, memory_width=6).double().eval()
    for each in made.parameters():
        torch.nn.init.normal_(each, std=0.5)
    return made


def rows(s: int = sum(CHUNKS), m: int = 3) -> Tensor:
    return torch.randn(m, s, 6).double()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_chunked_equals_whole(form: str, grad: bool) -> None:
    made, whole, query = layer(), rows(), torch.randn(3, 5, 8).double()
    with torch.set_grad_enabled(grad):
        chunks = whole.split(CHUNKS, 1)
        memory = made.remember(chunks[0], form=form)
        older = [(memory, made(query, memory))]
        for chunk in chunks[1:]:
            memory = made.remember(memory.append(chunk), form=form)
            older.append((memory, made(query, memory)))
        end = 0
        for (kept, before), size in zip(older, CHUNKS, strict=True):
            end += size
            wanted = made(query, made.remember(whole[:, :end], form=form))
            torch.testing.assert_close(before, wanted)
            assert torch.equal(made(query, kept), before)  # longer ones have not touched it


@pytest.mark.parametrize("form", FORMS)
def test_chunks_of_unequal_lengths(form: str) -> None:
    made, query = layer(), torch.randn(3, 5, 8).double()
    lengths = ([3, 0, 2], [1, 1, 0], [0, 4, 2])
    chunks = [rows(s) for s in (3, 1, 4)]
    garbage = [x.clone() for x in chunks]
    for chunk, counts in zip(garbage, lengths, strict=True):
        for i, count in enumerate(counts):
            chunk[i, count:] = torch.nan
    memory = made.remember(garbage[0], lengths[0], form=form)
    for chunk, counts in zip(garbage[1:], lengths[1:], strict=True):
        memory = made.remember(memory.append(chunk, counts), form=form)
    assert memory.lengths is not None and memory.lengths.tolist() == [4, 5, 4]
    for i in range(3):
        alone = torch.cat([x[i : i + 1, : n[i]] for x, n in zip(chunks, lengths, strict=True)], 1)
        wanted = made(query[i : i + 1], made.remember(alone, form=form))
        torch.testing.assert_close(made(query, memory)[i : i + 1], wanted)


@pytest.mark.parametrize("form", FORMS)
def test_lengths_may_begin_with_a_later_chunk(form: str) -> None:
    made, query, whole = layer(), torch.randn(3, 5, 8).double(), rows(9)
    with torch.no_grad():
        memory = made.remember(whole[:, :4], form=form).append(whole[:, 4:], [5, 0, 2])
        found = made(query, made.remember(memory, form=form))
        torch.testing.assert_close(found, made(query, made.remember(whole, [9, 4, 6], form=form)))


def test_storage_is_shared_and_projection_is_for_new_rows_alone() -> None:
    made, whole = layer(), rows(40)
    seen: list[int] = []
    made.key_projection.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    with torch.no_grad():
        memory = made.remember(whole[:, :10], form="projected")
        for start in range(10, 40, 2):
            before = memory
            memory = made.remember(memory.append(whole[:, start : start + 2]), form="projected")
        assert seen == [10] + [2] * 15
        places = [x.rows.untyped_storage().data_ptr() for x in (before, memory)]
        keys = [x.contents[made.number].key.untyped_storage().data_ptr() for x in (before, memory)]
    assert places[0] == places[1]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("form", FORMS)
def test_two_futures_of_one_past(form: str) -> None:
    made, past, query = layer(), rows(5), torch.randn(3, 2, 8).double()
    left, right = rows(4), rows(2)
    with torch.no_grad():
        memory = made.remember(past, form=form)
        memory = made.remember(memory.append(rows(1)), form=form)  # storage with room to spare
        start = memory.rows.clone()
        both = [made.remember(memory.append(x), form=form) for x in (left, right)]
        for kept, more in zip(both, (left, right), strict=True):
            wanted = made.remember(torch.cat((start, more), 1), form=form)
            torch.testing.assert_close(made(query, kept), made(query, wanted))
        corrected = both[0].replace(7, rows(1))
        made(query, both[1])  # the other future has not been replaced
        with pytest.raises(xa.ContractError, match="rows from 7 on were replaced"):
            made(query, both[0])
        made(query, made.remember(corrected, form=form))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_replaced_rows_are_read_and_their_readers_refused(form: str, grad: bool) -> None:
    made, whole, query, new = layer(), rows(), torch.randn(3, 5, 8).double(), rows(4)
    with torch.set_grad_enabled(grad):
        short = made.remember(whole[:, :6], form=form)
        longer = made.remember(short.append(whole[:, 6:]), form=form)
        bare, shared = longer.without_rows(), longer.shared_by(2)
        corrected = made.remember(longer.replace(8, new), form=form)
        wanted = made(query, made.remember(torch.cat((whole[:, :8], new), 1), form=form))
        torch.testing.assert_close(made(query, corrected), wanted)
        made(query, short)  # it holds no row that was replaced
        outdated = [longer, shared] + [bare] * (form == "projected")
        for old in outdated:
            asked = query.repeat_interleave(old.sequences // 3, 0)
            with pytest.raises(xa.ContractError, match="must be the newest, got one whose rows"):
                made(asked, old)
        for verb in (longer.append, lambda x: longer.replace(0, x), made.remember):
            with pytest.raises(xa.ContractError, match="must be the newest"):
                verb(longer if verb == made.remember else new)
        again = made.remember(corrected.append(new), form=form)
        wanted = made.remember(torch.cat((whole[:, :8], new, new), 1), form=form)
        torch.testing.assert_close(made(query, again), made(query, wanted))


def test_a_layer_that_lags_behind_is_refused() -> None:
    first, second, query = layer(0), layer(1), torch.randn(3, 5, 8).double()
    memory = second.remember(first.remember(rows(4), form="projected"), form="raw")
    longer = memory.append(rows(2))
    second(query, longer)  # it reads the rows themselves
    with pytest.raises(xa.ContractError, match="remembered to its last row, 6 in all, got 4 that"):
        first(query, longer)
    with torch.no_grad():
        first.key_projection.weight.add_(1)
    fresh = first.remember(longer, form="projected")  # changed since: projected anew, and whole
    torch.testing.assert_close(first(query, fresh), first(query, longer.rows))


def test_the_owner_stays() -> None:
    made, whole, query = layer(), rows(9), torch.randn(6, 5, 8).double()
    with torch.no_grad():
        memory = made.remember(whole[:, :4]).shared_by(2).select(torch.tensor([5, 0, 1, 1, 2, 4]))
        memory = made.remember(memory.append(whole[:, 4:]))
        wanted = made(query, whole[torch.tensor([2, 0, 0, 0, 1, 2])])
        torch.testing.assert_close(made(query, memory), wanted)


def test_values_that_come_from_other_rows() -> None:
    torch.manual_seed(0)
    made = xa.CrossAttention(8, 2, memory_width=(6, 5)).double().eval()
    query, keys, values = torch.randn(3, 5, 8), torch.randn(3, 7, 6), torch.randn(3, 7, 5)
    query, keys, values = query.double(), keys.double(), values.double()
    for form in FORMS:
        memory = made.remember(keys[:, :4], value_rows=values[:, :4], form=form)
        memory = made.remember(memory.append(keys[:, 4:], value_rows=values[:, 4:]), form=form)
        wanted = made(query, made.remember(keys, value_rows=values, form=form))
        torch.testing.assert_close(made(query, memory), wanted)
        with pytest.raises(xa.ContractError, match="`value_rows` must be given where"):
            memory.append(keys)


def test_gradients_flow_through_chunks() -> None:
    made, whole, query = layer(), rows().requires_grad_(), torch.randn(3, 5, 8).double()
    for form in FORMS:
        found = []
        for chunks in ((sum(CHUNKS),), CHUNKS):
            first, *others = whole.split(chunks, 1)
            memory = made.remember(first, form=form)
            for chunk in others:
                memory = made.remember(memory.append(chunk), form=form)
            output = made(query, memory).square().sum()
            found.append(torch.autograd.grad(output, (whole, *made.parameters())))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other)


def test_what_was_read_can_still_be_differentiated_after_growing() -> None:
    made, query = layer(), torch.randn(3, 5, 8).double().requires_grad_()
    with torch.no_grad():
        memory = made.remember(rows(4))
        memory = made.remember(memory.append(rows(1)))
    output = made(query, memory).sum()
    with torch.no_grad():
        made.remember(memory.append(rows(1)))
    output.backward()
    assert query.grad is not None and query.grad.abs().sum() > 0


def test_inference_mode_leaves_a_memory_that_grows_outside() -> None:
    made, whole, query = layer(), rows(9), torch.randn(3, 5, 8).double()
    with torch.inference_mode():
        memory = made.remember(whole[:, :4], form="projected")
        memory = made.remember(memory.append(whole[:, 4:6]), form="projected")
    with torch.no_grad():
        memory = made.remember(memory.append(whole[:, 6:]), form="projected")
        torch.testing.assert_close(made(query, memory), made(query, whole))


def test_rotary_positions_of_all_rows() -> None:
    made, whole, query = layer(), rows(9), torch.randn(3, 5, 8).double()
    made.rotary = Rotary(4)
    at, asked = torch.arange(9) * 3, torch.arange(5) + 20
    memory = made.remember(whole[:, :4], positions=at[:4])
    memory = made.remember(memory.append(whole[:, 4:]), positions=at)
    wanted = made(query, made.remember(whole, positions=at), positions=asked)
    torch.testing.assert_close(made(query, memory, positions=asked), wanted)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_stand_for_themselves(copied: object) -> None:
    whole, new = rows(9), rows(2)
    memory = xa.Memory.of(whole[:, :4]).append(whole[:, 4:])
    other = copied(memory)
    memory.replace(5, new)
    assert torch.equal(other.append(new).rows, torch.cat((whole, new), 1))
    moved = xa.Memory.of(whole).to(torch.float32)
    assert moved.append(new.float()).size == (3, 11)


BAD = (
    (lambda x: x.append([1.0]), "`rows` must be a float tensor"),
    (lambda x: x.append(rows(2, m=2)), "`rows` must be like the rows that are there"),
    (lambda x: x.append(rows(2)[..., :5]), "`rows` must be like the rows that are there"),
    (lambda x: x.append(rows(2).float()), "`rows` must be like the rows that are there"),
    (lambda x: x.append(rows(2), [1, 3, 0]), "`lengths` must be between 0 and 2"),
    (lambda x: x.append(rows(2), value_rows=rows(2)), "`value_rows` must be given where"),
    (lambda x: x.without_rows().append(rows(2)), "`rows` must be still there"),
    (lambda x: x.replace(-1, rows(2)), "`from_row` must be an integer of at least 0"),
    (lambda x: x.replace(2.0, rows(2)), "`from_row` must be an integer of at least 0"),
    (lambda x: x.replace(5, rows(2)), "`from_row` must be at most 4"),
    (lambda x: x.replace(1, rows(2), [1, 3, 0]), "`lengths` must be between 0 and 2"),
)


@pytest.mark.parametrize(("change", "match"), BAD, ids=[match for _, match in BAD])
def test_bad_rows_are_refused_and_nothing_is_outdated(change: object, match: str) -> None:
    memory = xa.Memory.of(rows(4))
    with pytest.raises(xa.ContractError, match=match):
        change(memory)
    memory.append(rows(1))
    ragged = xa.Memory.of(rows(4), [4, 2, 3])
    with pytest.raises(xa.ContractError, match="`from_row` must be at most 2"):
        ragged.replace(3, rows(2))
    assert ragged.replace(2, rows(3)).size == (3, 5)
