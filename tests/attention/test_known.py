"""What is known of traits is what the long way finds, and an error comes however often asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest
import torch

import crossattention as xa
from crossattention.attention.choose import KERNELS, by_name, choose, seconds
from crossattention.attention.door import enter
from crossattention.attention.known import read_known
from crossattention.kernels.native.library import absent
from problems import MASKS, OWNERS, masks, streams

DEFAULTS: dict[str, Any] = dict.fromkeys(
    ("visible", "bias", "lengths", "owner", "causal", "softcap", "scale")
)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("owner", OWNERS)
def test_a_choice_that_is_looked_up_is_the_cheapest(owner: str, grad: bool) -> None:
    torch.manual_seed(1)
    kinds = (torch.float32, torch.bfloat16)
    for _, mask, dtype, t, softcap in product("ab", MASKS, kinds, (2, 5), (None, 2.0)):
        query, key, value = streams(OWNERS[owner], dtype=dtype, t=t)
        given = masks(mask, len(OWNERS[owner]), 4, t, 7) | {
            "owner": OWNERS[owner],
            "softcap": softcap,
        }
        with torch.set_grad_enabled(grad):
            query.requires_grad_(grad)
            problem, _ = enter(query, key, value, **(DEFAULTS | given), dropout=0.0)
            accepting = [kernel for kernel in KERNELS if not kernel.refuses(problem)]
            wanted = min(accepting, key=lambda kernel: seconds(kernel, problem))
            assert choose(problem) is wanted


@torch.no_grad()
def test_a_kernel_that_is_known_is_the_one_that_is_chosen() -> None:
    for _, s, dtype in product("ab", (3, 7, 512), (torch.float32, torch.float16)):
        query, key, value = streams([0, 1, 2], dtype=dtype, s=s)
        for mask in MASKS:
            given = masks(mask, 3, 4, query.shape[2], s)
            if given.pop("causal", None) is not None:
                continue
            problem, _ = enter(query, key, value, **(DEFAULTS | given), dropout=0.0)
            for scale in (0.5, None):
                known = read_known(query, key, value, scale=scale, **given)
                named = xa.attend(query, key, value, scale=scale, kernel=choose(problem), **given)
                assert known is None or torch.equal(known, named)
                assert torch.equal(xa.attend(query, key, value, scale=scale, **given), named)


@torch.no_grad()
def test_tensors_of_one_shape_may_lie_differently() -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    bias = torch.randn(3, 4, query.shape[2], 7)
    ways = {
        "as they are": lambda x: x,
        "permuted": lambda x: x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0),
        "merged": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "shared": lambda x: x[:1].expand(x.shape),
        "of every other": lambda x: torch.stack([x, x + 1], -1)[..., 0],
        "negated lazily": lambda x: torch._neg_view(x),
    }
    for (_, change), lengths in product(ways.items(), (None, torch.tensor([[5, 9], [7, 9]])[:, 0])):
        every = [[change(x), x.clone()] for x in (query, key, value, bias)]
        for q, k, v, more in product(*every):
            given = {"bias": more, "lengths": None if lengths is None else [*lengths, 0]}
            read = xa.attend(q, k, v, **given)
            want = xa.attend(q.clone(), k.clone(), v.clone(), kernel="reference", **given)
            assert torch.allclose(read, want, atol=1e-5)


@torch.no_grad()
def test_lengths_are_looked_at_each_time() -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    lengths = torch.tensor([3, 9, 7, 9, 0, 9])[::2]  # numbers that lie apart
    for filled in ([3, 7, 0], [7, 0, 5], [0, 0, 0]):
        lengths.copy_(torch.tensor(filled))
        for given in (lengths, filled, lengths.int()):
            want = xa.attend(query, key, value, lengths=filled, kernel="reference")
            assert torch.allclose(xa.attend(query, key, value, lengths=given), want, atol=1e-6)
    for filled, wrong in (([3, 8, 0], "0 to 8"), ([-1, 7, 0], "-1 to 7")):
        lengths.copy_(torch.tensor(filled))
        with pytest.raises(xa.ContractError, match=f"values from {wrong}"):
            xa.attend(query, key, value, lengths=lengths)


@torch.no_grad()
@pytest.mark.parametrize("empty", ["t", "s", "e"])
def test_lengths_are_looked_at_where_nothing_is_read(empty: str) -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    some = {"t": slice(0 if empty == "t" else None), "s": slice(0 if empty == "s" else None)}
    query, key, value = query[:, :, some["t"]], key[:, :, some["s"]], value[:, :, some["s"]]
    value = value[..., :0] if empty == "e" else value
    assert not xa.attend(query, key, value, lengths=[0, 0, 0]).any()
    with pytest.raises(xa.ContractError, match="values from 0 to 8"):
        xa.attend(query, key, value, lengths=[0, 8, 0])


@torch.no_grad()
def test_numbers_that_lie_elsewhere_are_not_taken_for_addresses() -> None:
    query, key, value = streams([0, 0, 1], dtype=torch.float32)
    owner = xa.Owner.of([0, 0, 1], len(key))
    for _ in "ab":
        xa.attend(query, key, value, owner=owner)
        with pytest.raises(xa.ContractError, match="`owner` must be with its values"):
            xa.attend(query, key, value, owner=owner.to("meta"))
        far = [each.to("meta") for each in (query, key, value)]
        assert xa.attend(*far, owner=owner.to("meta")).is_meta
    key.untyped_storage().resize_(0)
    if absent() == "":
        with pytest.raises(xa.ContractError, match="one whose storage is empty"):
            xa.attend(query, key, value, owner=owner)


@torch.no_grad()
@pytest.mark.skipif(absent() != "", reason="torch indexes, and says so")
@pytest.mark.parametrize("wrong", [-1, 3, 10**9])
def test_an_owner_that_was_changed_since_reads_no_further(wrong: int) -> None:
    query, key, value = streams([0, 0, 1], dtype=torch.float32)
    owner = xa.Owner.of([0, 0, 1], len(key))
    xa.attend(query, key, value, owner=owner)
    owner.index[1] = wrong
    with pytest.raises(xa.ContractError, match="`owner` must be between 0 and 2"):
        xa.attend(query, key, value, owner=owner)


@torch.no_grad()
def test_readings_of_one_layout_run_at_the_same_time() -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32, s=512)
    many = [query * (1 + at) for at in range(16)]
    want = [xa.attend(each, key, value) for each in many]

    def read(at: int) -> bool:
        with torch.no_grad():  # each thread has its own
            return all(torch.equal(xa.attend(many[at], key, value), want[at]) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(len(many))))


@torch.no_grad()
@pytest.mark.parametrize("index", [[0, 0, 0, 1, 1, 1], [1, 0, 1], [0, 0, 2], [1, 1]])
def test_what_an_owner_shares_is_known_by_how_it_groups(index: list[int]) -> None:
    memories = max(index) + 1
    owner = xa.Owner.of(index, memories)
    query = torch.randn(len(index), 4, 3, 6)
    key, value = torch.randn(2, memories, 2, 7, 6)
    key[owner.unread if owner.unread is not None else []] = torch.nan  # nobody reads it
    for _ in "ab":
        read = xa.attend(query, key, value, owner=owner)
        copied = xa.attend(query, key[index], value[index], kernel="reference")
        assert torch.allclose(read, copied, atol=1e-6)


@torch.no_grad()
def test_nothing_is_known_of_what_takes_the_long_way() -> None:
    query, key, value = streams([0, 1, 2])
    for _ in "ab":
        assert read_known(query[:, 0], key[:, 0], value[:, 0]) is None
        assert read_known(query, key, value, [0, 1, 2]) is None
        assert read_known(query, key, value, visible=torch.ones(5, 7).bool()) is None
        assert not xa.attend(query, key[:, :, :0], value[:, :, :0]).any()
    with torch.enable_grad():
        assert read_known(query, key, value) is None


@torch.no_grad()
@pytest.mark.parametrize(
    "broken", ["width", "rows", "heads", "memories", "dtype", "rank", "nested"]
)
def test_what_is_refused_once_is_refused_again(broken: str) -> None:
    query, key, value = streams([0, 1, 2])
    xa.attend(query, key, value)
    bad = {
        "width": (query[..., :2], key, value),
        "rows": (query, key, value[:, :, :5]),
        "heads": (query[:, :3], key, value),
        "memories": (query, key[:2], value[:2]),
        "dtype": (query, key.long(), value),
        "rank": (query, key[0], value[0]),
        "nested": (query, torch.nested.nested_tensor(list(key)), value),
    }[broken]
    said = set()
    for _ in "ab":
        with pytest.raises(xa.ContractError) as caught:
            xa.attend(*bad)
        said.add(str(caught.value))
    with torch.enable_grad(), pytest.raises(xa.ContractError) as caught:
        xa.attend(*bad)
    assert said == {str(caught.value)}


@torch.no_grad()
def test_masks_are_judged_however_often_their_like_was_let_in() -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    visible, bias = torch.rand(3, 1, 5, 7) > 0.5, torch.randn(1, 4, 5, 7)
    good: list[dict[str, Any]] = [{"visible": visible}, {"bias": bias}, {"lengths": [7, 0, 3]}]
    bad: list[dict[str, Any]] = [
        {"bias": visible}, {"visible": bias}, {"visible": visible[..., :6]},
        {"bias": bias[:, :3]}, {"bias": bias.long()}, {"bias": bias.to_sparse()},
        {"lengths": [8, 0, 3]}, {"lengths": torch.tensor([7, -1, 3])}, {"lengths": [7, 3]},
        {"visible": visible.tolist()},
    ]  # fmt: skip
    for _, given in product("ab", good):
        xa.attend(query, key, value, **given)
    for _, given in product("ab", bad):
        with pytest.raises(xa.ContractError):
            xa.attend(query, key, value, **given)


@torch.no_grad()
@pytest.mark.parametrize("name", ["matmul", "fused", "native"])
def test_hidden_rows_may_hold_anything_for_a_kernel_that_is_known(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = by_name(name)
    monkeypatch.setattr("crossattention.attention.known.choose", lambda problem: known)
    monkeypatch.setattr("crossattention.attention.known._KNOWN", {})
    query, key, value = streams([2, 2, 0], dtype=torch.float32)
    owner, lengths = xa.Owner.of([2, 2, 0], 3), [4, 7, 0]
    want = xa.attend(query, key, value, owner=owner, lengths=lengths, kernel="reference")
    key[0, :, 4:], value[0, :, 4:], key[1:], value[1:] = (torch.nan,) * 4
    for _ in "ab":
        read = xa.attend(query, key, value, owner=owner, lengths=lengths)
        assert torch.allclose(read, want, atol=1e-6) and not read[:2].any()


@torch.no_grad()
def test_autocast_changes_nothing() -> None:
    query, key, value = streams([0, 1, 2], dtype=torch.float32)
    read = xa.attend(query, key, value)
    with torch.autocast("cpu"):
        assert torch.equal(xa.attend(query, key, value), read)
