"""A pool's plan is kept while nothing changes, and is never older than what it hangs on."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import crossattention as xa
from crossattention.kernels.matmul import Matmul
from crossattention.kernels.native import Native
from crossattention.kernels.native.library import absent
from crossattention.nn import AttentionPool, NullRow, Rotary
from crossattention.nn import pool as pool_module

pytestmark = pytest.mark.skipif(absent() != "", reason="the native kernel is absent")


def made() -> AttentionPool:
    """A pool of 2 queries over rows of width 5, which the native kernel reads raw."""
    torch.manual_seed(0)
    pool = AttentionPool(12, 4, queries=2, memory_width=5)
    pool.form = "raw"  # so small a pool would project
    for parameter in pool.parameters():
        nn.init.normal_(parameter, std=0.5)
    return pool.eval()


def rows(b: int = 3, s: int = 7) -> Tensor:
    return torch.randn(b, s, 5)


def plain(pool: AttentionPool, given: Tensor) -> Tensor:
    """The layer itself with a query for each sequence, keeping nothing."""
    memory = pool.attention.remember(given, queries=2, form=pool.form)
    output: Tensor = pool.attention(pool.queries(len(given)), memory)
    return output


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each plan that was made since goes straight to the native kernel."""
    seen: list[bool] = []
    make = pool_module.plan_at_once

    def counted(*given: object) -> object:
        plan = make(*given)
        seen.append(plan is not None and plan.layout is not None)
        return plan

    monkeypatch.setattr(pool_module, "plan_at_once", counted)
    return seen


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_rows_alike_are_read_by_one_plan(context: Callable[..., object], plans: list[bool]) -> None:
    pool = made()
    with context():
        for _ in range(3):
            given = rows()
            torch.testing.assert_close(pool(given), plain(pool, given))
    assert plans == [True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: rows(2, 7),
        lambda: rows(3, 5),
        lambda: rows(7, 3).transpose(0, 1),
        lambda: rows(3, 1).expand(-1, 7, -1),
        lambda: torch.randn(3, 7, 10)[..., ::2],
        lambda: nn.Parameter(rows()),
    ],
)
def test_other_rows_have_plans_of_their_own(make: Callable[[], Tensor], plans: list[bool]) -> None:
    pool, given = made(), make()
    with torch.no_grad():
        pool(rows())
        for _ in range(2):
            torch.testing.assert_close(pool(given), plain(pool, given))
        pool(rows())
    same = given.shape == (3, 7, 5) and given.is_contiguous()  # a parameter is a tensor
    assert plans == [True] * (1 if same else 3)


def test_rows_that_do_not_fit_are_refused_after_ones_that_did() -> None:
    pool = made()
    with torch.no_grad():
        pool(rows())
        for given in (rows()[0], rows().double(), rows()[..., :3], rows().long()):
            with pytest.raises(xa.ContractError, match="rows"):
                pool(given)


def another(name: str) -> Callable[[AttentionPool], None]:
    def change(pool: AttentionPool) -> None:
        other = copy.deepcopy(getattr(pool.attention, name))
        with torch.no_grad():
            other.weight.mul_(1.5)
        setattr(pool.attention, name, other)

    return change


def scaled(name: str) -> Callable[[AttentionPool], None]:
    return lambda pool: pool.get_parameter(name).mul_(1.5)


def pointed(pool: AttentionPool) -> None:
    weight = pool.attention.value_projection.weight
    weight.data = weight.data * 1.5


def with_null_row(pool: AttentionPool) -> None:
    pool.attention.null_row = NullRow(4, 3, 3)
    nn.init.normal_(pool.attention.null_row.key)


CHANGES: dict[str, Callable[[AttentionPool], object]] = {
    "queries in place": scaled("queries.weight"),
    "keys in place": scaled("attention.key_projection.weight"),
    "values in place": scaled("attention.value_projection.weight"),
    "a value bias in place": scaled("attention.value_projection.bias"),
    "values elsewhere": pointed,
    "other keys": another("key_projection"),
    "other values": another("value_projection"),
    "other outputs": another("output_projection"),
    "a scale": lambda pool: setattr(pool.attention, "scale", 1.5),
    "a soft cap": lambda pool: setattr(pool.attention, "softcap", 0.1),
    "a null row": with_null_row,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        torch.testing.assert_close(pool(given), before)
        CHANGES[name](pool)
        for _ in range(2):
            found = pool(given)
            torch.testing.assert_close(found, plain(pool, given))
            assert not torch.allclose(found, before)


def test_rotary_keys_are_refused_after_a_plan_without_them() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        pool(given)
        pool.attention.rotary = Rotary(2)
        with pytest.raises(xa.ContractError, match="rotary"):
            pool(given)


def test_a_hook_on_the_values_takes_the_keys_too() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        pool(given)
        pool.attention.value_projection.register_forward_hook(lambda _, __, values: values * 1.5)
        with pytest.raises(xa.ContractError, match="hooks"):
            pool(given)
        pool.form = "auto"
        wanted = pool.attention(pool.queries(3), pool.attention.remember(given))
        torch.testing.assert_close(pool(given), wanted)


@pytest.mark.parametrize(
    "watch", ["register_full_backward_hook", "register_full_backward_pre_hook"]
)
def test_a_backward_hook_is_seen_as_it_comes_and_as_it_goes(watch: str, plans: list[bool]) -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        hook = getattr(pool.attention.value_projection, watch)(lambda *_: None)
        with pytest.raises(xa.ContractError, match="hooks"):
            pool(given)
        pool.form = "auto"
        torch.testing.assert_close(pool(given), before)
        pool.form = "raw"
        hook.remove()
        torch.testing.assert_close(pool(given), before)
    assert plans == [True, False, True]


@pytest.mark.parametrize("name", ["key_projection", "value_projection"])
@pytest.mark.parametrize("lie", [Tensor.to_sparse_csr, Tensor.to_sparse])
def test_weights_without_a_storage_are_read_without_a_plan(
    lie: Callable[[Tensor], Tensor], name: str
) -> None:
    pool, given = made(), rows()
    pool.form = "projected"
    projection = pool.attention.get_submodule(name)
    with torch.no_grad():
        wanted = pool(given)
        projection.weight = nn.Parameter(lie(projection.weight.detach()))
        for _ in range(2):
            torch.testing.assert_close(pool(given), wanted)


def test_values_without_a_size_find_it_in_the_first_rows() -> None:
    pool, given = made(), rows()
    pool.form = "auto"
    pool.attention.value_projection = nn.LazyLinear(12)
    with torch.no_grad():
        pool(given)
        pool.form = "projected"
        torch.testing.assert_close(pool(given), plain(pool, given))


@pytest.mark.parametrize("kernel", ["matmul", Matmul(), Native(), Native("portable")])
def test_another_kernel_is_called(kernel: object, plans: list[bool]) -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        pool.attention.kernel = kernel
        torch.testing.assert_close(pool(given), before)
    assert plans == [True, False]  # a kernel that was given is run as it is


def test_dropout_form_and_gradients_are_seen(plans: list[bool]) -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        pool.attention.dropout = 0.5
        pool(given)
        pool.train()
        assert not torch.allclose(pool(given), before)
        pool.attention.dropout = 1.5
        with pytest.raises(xa.ContractError, match="dropout"):
            pool(given)
        pool.attention.dropout = 0.0
        pool(given)
        pool.form = "projected"
        torch.testing.assert_close(pool(given), before)
        pool.form = "folded"
        with pytest.raises(xa.ContractError, match="form"):
            pool(given)
        pool.form = "raw"
    assert pool(given).requires_grad
    assert plans == [True, True, False, True, False, False]


def test_whoever_follows_operators_sees_the_reading() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        pool(given)
        with torch.profiler.profile() as profile:
            pool(given)
    assert "crossattention::native_read" in {each.key for each in profile.key_averages()}
