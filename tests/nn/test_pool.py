"""Pooling: what is folded once equals the plain layer, and is never older than the weights."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.func import functional_call, vmap
from torch.nn.utils import parametrizations, prune, vector_to_parameters

import crossattention as xa
from crossattention.kernels.contract import Problem, Reading
from crossattention.kernels.matmul import Matmul
from crossattention.nn import AttentionPool, LearnedQueries, NullRow
from crossattention.nn import pool as pool_module

FORMS = ("raw", "projected")


def made(**options: object) -> AttentionPool:
    """A pool of 2 queries over rows of width 5, where every weight and bias has its effect."""
    torch.manual_seed(0)
    pool = AttentionPool(12, 4, **{"queries": 2, "memory_width": 5, **options}).double()
    pool.attention.query_norm = nn.LayerNorm(3).double()
    pool.attention.softcap = 2.0  # it sees the key bias
    pool.form = "raw"  # so small a pool would project
    for parameter in pool.parameters():
        nn.init.normal_(parameter)
    return pool.eval()


def rows(b: int = 3, s: int = 7) -> Tensor:
    return torch.randn(b, s, 5, dtype=torch.float64)


def plain(pool: AttentionPool, given: Tensor, **masks: object) -> Tensor:
    """The layer itself with a query for each sequence, keeping nothing."""
    attention = pool.attention
    queries = pool.queries(given.shape[0])
    form = "raw" if pool.form == "raw" else "auto"
    memory = attention.remember(given, masks.pop("lengths", None), queries=2, form=form)
    return attention(queries, memory, **masks)


def close(found: Tensor, wanted: Tensor, atol: float = 1e-10) -> None:
    torch.testing.assert_close(found, wanted, atol=atol, rtol=atol)


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch of each query that has been folded since."""
    seen: list[int] = []
    fold_query = pool_module.raw.fold_query

    def counted(query: Tensor, *others: object) -> object:
        seen.append(query.shape[0])
        return fold_query(query, *others)

    monkeypatch.setattr(pool_module.raw, "fold_query", counted)
    return seen


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"queries": 1}])
def test_both_forms_equal_the_equation(
    options: dict[str, object], softcap: float | None, form: str
) -> None:
    pool, given = made(**options), rows()
    pool.form, pool.attention.softcap = form, softcap
    attention = pool.attention
    asked = attention.query_norm(
        attention.query_projection(pool.queries.weight).unflatten(-1, (4, 3)).transpose(0, 1)
    )
    key, value = (
        projection(given).unflatten(-1, (4, 3)).transpose(1, 2)
        for projection in (attention.key_projection, attention.value_projection)
    )
    read = xa.attend(asked.expand(3, -1, -1, -1), key, value, lengths=[7, 2, 4], softcap=softcap,
                     kernel="reference")  # fmt: skip
    wanted = attention.output_projection(read.transpose(1, 2).flatten(2))
    close(pool(given, [7, 2, 4]), wanted)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            for _ in range(2):
                close(pool(given, [7, 2, 4]).clone(), wanted.detach())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("memory_heads", [3, 1])
@pytest.mark.parametrize("queries", [1, 5])
def test_averages_that_the_native_kernel_maps(queries: int, memory_heads: int, bias: bool) -> None:
    """In float32 at widths that it maps, whole batches and ones in which some read nothing."""
    torch.manual_seed(1)
    pool = AttentionPool(48, 3, queries=queries, memory_width=32, bias=bias)
    pool.attention = xa.CrossAttention(
        48, 3, memory_width=32, memory_heads=memory_heads, value_width=13, bias=bias
    )
    pool.form = "raw"
    for parameter in pool.parameters():
        nn.init.normal_(parameter, std=0.3)
    exact, given = copy.deepcopy(pool).double(), torch.randn(2, 29, 32)
    exact.form = "projected"
    visible = torch.rand(2, 3, queries, 29) > 0.5
    visible[1, 2], visible[0, :, -1] = False, False
    for masks in ({}, {"lengths": [29, 0]}, {"visible": visible}):
        wanted = exact(given.double(), **masks).float()
        with torch.no_grad():
            close(pool(given, **masks), wanted, 2e-5)
        close(pool(given, **masks), wanted, 2e-5)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_equal_the_plain_layers(form: str) -> None:
    pool, given = made(), rows().requires_grad_()
    pool.form = form
    pool.attention.null_row = NullRow(4, 3, 3).double()
    visible = torch.rand(3, 4, 2, 7) > 0.3
    with torch.no_grad():
        pool(given)  # what is kept must not be trained through
    inputs = [given, *pool.parameters()]
    found, wanted = pool(given, visible=visible), plain(pool, given, visible=visible)
    close(found, wanted)
    assert pool._asked._entry is None  # it would keep the whole graph alive
    assert pool._folded._entry is None
    ours = torch.autograd.grad(found.sin().sum(), inputs)
    theirs = torch.autograd.grad(wanted.sin().sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 1e-9)
        assert bool(one.any())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("grad", [True, False])
def test_queries_are_projected_and_folded_for_one(form: str, grad: bool, folds: list[int]) -> None:
    pool, given, asked = made(), rows(), []
    pool.form = form
    ask = pool.attention.ask
    pool.attention.ask = lambda query: asked.append(query.shape[0]) or ask(query)
    with nullcontext() if grad else torch.no_grad():
        for _ in range(3):
            pool(given)
    assert asked == [1] * (3 if grad else 1)
    assert folds == ([1] * (3 if grad else 1) if form == "raw" else [])


def test_rows_of_any_number_and_none() -> None:
    pool = made()
    with torch.no_grad():
        for b, s in ((3, 7), (1, 1), (5, 0), (0, 4), (2, 101)):
            given = rows(b, s)
            close(pool(given), plain(pool, given))
        fresh = made()
        assert fresh(rows(0, 4)).shape == (0, 2, 12)
        close(fresh(given), pool(given))
        assert not pool(rows(5, 0)).any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("grad", [True, False])
def test_empty_is_exactly_zero_and_hidden_garbage_is_harmless(form: str, grad: bool) -> None:
    pool, given = made(), rows()
    pool.form = form
    clean = pool(given, [4, 0, 7]).detach()
    given[0, 4:], given[1] = torch.nan, torch.inf
    with nullcontext() if grad else torch.no_grad():
        for _ in range(2):
            found = pool(given, [4, 0, 7])
            assert torch.equal(found[1], torch.zeros(2, 12, dtype=torch.float64))
            close(found.detach(), clean)
    if grad:
        found.sin().sum().backward()
        assert all(bool(each.grad.isfinite().all()) for each in pool.parameters())


@pytest.mark.parametrize("form", FORMS)
def test_weights_reproduce_the_output_and_change_nothing(form: str) -> None:
    pool, given = made(), rows()
    pool.form = form
    before, shown = pool(given, [4, 0, 7]), pool.weights(given, [4, 0, 7])
    assert torch.equal(pool(given, [4, 0, 7]), before)
    value = pool.attention.value_projection(given).unflatten(-1, (4, 3)).transpose(1, 2)
    close((shown.sum(-1)), torch.tensor([1.0, 0, 1]).double()[:, None, None].expand(3, 4, 2))
    output = pool.attention.output_projection((shown @ value).transpose(1, 2).flatten(2))
    close(output[::2], before[::2])
    close(pool.weights(given, [4, 0, 7], heads=[2, 0]), shown[:, [2, 0]])


def test_memories_of_others_and_shared_ones() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        wanted = pool(given, [7, 3, 5])
        others = xa.CrossAttention(8, 2, memory_width=5).double().remember(given, [7, 3, 5])
        close(pool(others), wanted)
        kept = pool.attention.remember(given, [7, 3, 5], form="projected")
        close(pool(kept), wanted)
        close(pool(kept.shared_by(2).select(torch.tensor([5, 0, 1]))), wanted[[2, 0, 0]])
        with pytest.raises(xa.ContractError, match="the memory has its own"):
            pool(kept, [7, 3, 5])
        pool.attention.value_projection.weight.mul_(2)
        with pytest.raises(xa.ContractError, match="stale"):
            pool(kept)


# Every way in which what is kept could be older than what it was made of.


class Adapter(nn.Module):
    """A low-rank change of a linear map that can be switched and merged."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.on = base, True
        self.down = nn.Linear(base.in_features, 2, bias=False).double()
        self.up = nn.Linear(2, base.out_features, bias=False).double()

    def forward(self, stream: Tensor) -> Tensor:
        added = self.up(self.down(stream)) if self.on else 0
        output: Tensor = self.base(stream) + added
        return output


def scaled(name: str) -> Callable[[AttentionPool], None]:
    def change(pool: AttentionPool) -> None:
        pool.get_parameter(name).mul_(1.5)

    return change


def stepped(kind: type[torch.optim.Optimizer], **options: object) -> Callable[..., None]:
    def change(pool: AttentionPool) -> None:
        optimizer = kind(pool.parameters(), lr=0.3, **options)
        with torch.enable_grad():
            pool(rows()).sin().sum().backward()
        optimizer.step()

    return change


def loaded(assign: bool) -> Callable[[AttentionPool], None]:
    def change(pool: AttentionPool) -> None:
        state = {name: each * 1.5 for name, each in pool.state_dict().items()}
        pool.load_state_dict(state, assign=assign)

    return change


def replaced(path: str, make: Callable[[nn.Module], nn.Module]) -> Callable[..., None]:
    def change(pool: AttentionPool) -> None:
        pool.set_submodule(path, make(pool.get_submodule(path)))

    return change


def another(module: nn.Module) -> nn.Module:
    other = copy.deepcopy(module)
    for parameter in other.parameters():
        parameter.mul_(1.5)
    return other


def new_parameter(pool: AttentionPool) -> None:
    linear = pool.attention.query_projection
    linear.weight = nn.Parameter(linear.weight * 1.5)


def bare_tensor(pool: AttentionPool) -> None:
    linear = pool.attention.key_projection
    weight = linear.weight.detach() * 1.5
    del linear.weight
    linear.weight = weight
    pool(rows())
    weight.mul_(2)


def hooked(path: str) -> Callable[[AttentionPool], None]:
    def change(pool: AttentionPool) -> None:
        pool.get_submodule(path).register_forward_hook(lambda _, __, output: output * 1.5)

    return change


def hooked_before(pool: AttentionPool) -> None:
    projection = pool.attention.query_projection
    projection.register_forward_pre_hook(lambda _, given: (given[0] * 1.5,))


def hook_of_a_changing_mind(pool: AttentionPool) -> None:
    factor = [1.0]
    pool.queries.register_forward_hook(lambda _, __, output: output * factor[0])
    pool(rows())
    factor[0] = 1.5


def patched(pool: AttentionPool) -> None:
    projection = pool.attention.query_projection
    forward = projection.forward
    projection.forward = lambda stream: forward(stream) * 1.5


def switched(pool: AttentionPool) -> None:
    pool.attention.query_projection = Adapter(pool.attention.query_projection)
    pool(rows())
    pool.attention.query_projection.on = False
    pool(rows())
    pool.attention.query_projection.on = True


def merged(pool: AttentionPool) -> None:
    adapter = Adapter(pool.attention.query_projection)
    pool.attention.query_projection = adapter
    pool(rows())
    adapter.base.weight.add_(adapter.up.weight @ adapter.down.weight)
    pool.attention.query_projection = adapter.base


def other_epsilon(pool: AttentionPool) -> None:
    pool.attention.query_norm.eps = 10.0


def settings(pool: AttentionPool) -> None:
    pool.attention.scale, pool.attention.softcap = 1.5, 0.7


def overwritten(pool: AttentionPool) -> None:
    old = torch.nn.utils.parameters_to_vector(pool.parameters())
    vector_to_parameters(old * 1.5, pool.parameters())


def to_and_back(pool: AttentionPool) -> None:
    pool.to(torch.bfloat16).to(torch.float64)


PARAMETERS = (
    "queries.weight", "attention.query_projection.weight", "attention.query_projection.bias",
    "attention.query_norm.weight", "attention.query_norm.bias", "attention.key_projection.weight",
    "attention.key_projection.bias", "attention.value_projection.weight",
    "attention.output_projection.bias",
)  # fmt: skip
CHANGES: dict[str, Callable[[AttentionPool], object]] = {
    **{f"in place: {name}": scaled(name) for name in PARAMETERS},
    "an optimiser's step": stepped(torch.optim.SGD),
    "a fused optimiser's step": stepped(torch.optim.AdamW, fused=True),
    "a foreach optimiser's step": stepped(torch.optim.AdamW, foreach=True),
    "load_state_dict": loaded(assign=False),
    "load_state_dict(assign=True)": loaded(assign=True),
    "a vector of parameters": overwritten,
    "to another dtype and back": to_and_back,
    "another parameter": new_parameter,
    "a tensor that is no parameter": bare_tensor,
    "other queries": replaced("queries", another),
    "more queries": replaced("queries", lambda _: LearnedQueries(3, 12).double()),
    "another query projection": replaced("attention.query_projection", another),
    "another query norm": replaced("attention.query_norm", another),
    "no query norm": replaced("attention.query_norm", lambda _: nn.Identity()),
    "a norm of another epsilon": other_epsilon,
    "another key projection": replaced("attention.key_projection", another),
    "a key norm": replaced("attention.key_norm", lambda _: nn.LayerNorm(3).double()),
    "another attention": replaced("attention", another),
    "a hook on the queries": hooked("queries"),
    "a hook on the query projection": hooked("attention.query_projection"),
    "a hook before the query projection": hooked_before,
    "a hook on the query norm": hooked("attention.query_norm"),
    "a hook on the key projection": hooked("attention.key_projection"),
    "a hook on the attention": hooked("attention"),
    "a hook that changes its mind": hook_of_a_changing_mind,
    "a patched forward": patched,
    "an adapter switched off and on": switched,
    "an adapter merged": merged,
    "a parametrised query projection": lambda pool: parametrizations.orthogonal(
        pool.attention.query_projection
    ),
    "a parametrised key projection": lambda pool: parametrizations.orthogonal(
        pool.attention.key_projection
    ),
    "a pruned query projection": lambda pool: prune.l1_unstructured(
        pool.attention.query_projection, "weight", 0.5
    ),
    "scale and soft cap": settings,
}


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_kept_is_never_stale(name: str, context: Callable[..., object]) -> None:
    pool, given = made(), rows()
    with torch.no_grad():  # a version that inference mode does not count would be unfair
        with context():
            before = pool(given).clone()
            close(pool(given).clone(), before)
        CHANGES[name](pool)
        if name in NOT_FOLDED:
            pool.form = "auto"
        with context():
            for _ in range(2):
                found, wanted = pool(given), plain(pool, given)
                close(found, wanted)
                assert found.shape != before.shape or not torch.allclose(found, before)


# After these the raw form is refused by name.
NOT_FOLDED = {"a key norm", "a hook on the key projection", "a parametrised key projection"}

# After these the query is folded anew in each call: what its modules do may change unseen.
NOT_KEPT = {
    "a tensor that is no parameter", "a hook on the queries", "a hook on the query projection",
    "a hook before the query projection", "a hook on the query norm",
    "a hook that changes its mind", "a patched forward", "an adapter switched off and on",
    "a parametrised query projection", "a pruned query projection",
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_change_it_is_kept_again_where_it_can_be(name: str, folds: list[int]) -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        CHANGES[name](pool)
        if name in NOT_FOLDED:
            pool.form = "auto"
        pool(given)
        folds.clear()
        pool(given)
    assert folds == ([1] if name in NOT_KEPT else [])


def test_float32_and_autocast_have_each_their_own() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        wide = pool(given)
        pool.float()
        narrow = pool(given.float())
        assert narrow.dtype == torch.float32
        close(narrow.double(), wide, 1e-3)
        with torch.autocast("cpu", torch.bfloat16):
            cast = pool(given.float())
            close(cast, plain(pool, given.float()), 1e-1)
            assert not torch.equal(cast.float(), narrow)
            asked = pool._ask(pool._state())
            assert asked.dtype == pool.attention.ask(pool.queries(1)).dtype
        assert torch.equal(pool(given.float()), narrow)


def test_other_parameters_for_one_call() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        for factor in (1.5, 0.5):  # tensors made and freed, whose addresses may come back
            others = {name: each * factor for name, each in pool.named_parameters()}
            twin = made()
            twin.load_state_dict(others)
            close(functional_call(pool, others, (given,)), plain(twin, given))
            assert torch.equal(pool(given), before)


# What torch's transforms wrap is made and freed in each call, so that its address comes back.
FACTORS = [1.5, 0.5, 2.0, 0.7, 1.2, 0.1]


def test_many_queries_at_once() -> None:
    pool, given, found = made(), rows(), []
    weights = [torch.stack([pool.queries.weight, x * pool.queries.weight]) for x in FACTORS]

    def read(weight: Tensor) -> Tensor:
        return functional_call(pool, {"queries.weight": weight}, (given,))

    with torch.no_grad():
        before = pool(given)
        for weight in weights:
            found.append(vmap(read)(weight))
        for weight, both in zip(weights, found, strict=True):
            close(both[0], before)
            pool.queries.weight.copy_(weight[1])
            close(both[1], plain(pool, given))
            pool.queries.weight.copy_(weight[0])
        close(vmap(lambda one: pool(one[None])[0])(given), before)
        assert torch.equal(pool(given), before)


@pytest.mark.parametrize("way", ["jvp", "dual numbers"])
def test_forward_derivatives_see_the_queries(way: str) -> None:
    pool, given, found = made(), rows(), []
    weight = pool.queries.weight.detach().clone()
    tangent, step = torch.randn_like(weight), 1e-6
    directions = [factor * tangent for factor in FACTORS]

    def read(queries: Tensor) -> Tensor:
        return functional_call(pool, {"queries.weight": queries}, (given,))

    with torch.no_grad():
        wanted = (read(weight + step * tangent) - read(weight - step * tangent)) / (2 * step)
        with forward_ad.dual_level() if way == "dual numbers" else nullcontext():
            for direction in directions:
                if way == "jvp":
                    found.append(torch.func.jvp(read, (weight,), (direction,))[1])
                else:
                    output = read(forward_ad.make_dual(weight, direction))
                    found.append(forward_ad.unpack_dual(output).tangent.clone())
    for factor, derivative in zip(FACTORS, found, strict=True):
        close(derivative, factor * wanted, 1e-6)


def test_copies_and_pickles_begin_empty() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        size, names = len(pickle.dumps(pool)), set(pool.state_dict())
        assert names == set(made().state_dict()) == {name for name, _ in pool.named_parameters()}
        assert size == len(pickle.dumps(made()))
        stream = io.BytesIO()
        torch.save(pool, stream)
        stream.seek(0)
        twins = (
            copy.deepcopy(pool),
            pickle.loads(pickle.dumps(pool)),
            torch.load(stream, weights_only=False),
        )
        for twin in twins:
            assert torch.equal(twin(given), before)
            twin.queries.weight.mul_(1.5)
            close(twin(given), plain(twin, given))
            assert torch.equal(pool(given), before)


def test_inference_mode_poisons_nothing() -> None:
    pool, given = made(), rows()
    with torch.inference_mode():
        inside = pool(given)
    with torch.no_grad():
        outside = pool(given)
    assert not outside.is_inference()
    close(outside, inside.clone())
    found = pool(given)
    found.sum().backward()
    assert bool(pool.queries.weight.grad.any())
    with torch.inference_mode():
        close(pool(given), inside)


def test_a_kernel_meets_no_tensor_of_another_mode() -> None:
    class Watching(Matmul):
        def run(self, problem: Problem) -> Reading:
            assert problem.query.is_inference() == torch.is_inference_mode_enabled()
            return super().run(problem)

    pool, given = made(), rows()
    pool.attention.kernel = Watching()
    for context in (torch.inference_mode, torch.no_grad, torch.inference_mode):
        with context():
            pool(given.clone())


def test_a_frozen_pool_still_passes_gradients_to_its_rows() -> None:
    pool, given = made().requires_grad_(False), rows().requires_grad_()
    with torch.no_grad():
        pool(given)
    (found,) = torch.autograd.grad(pool(given).sin().sum(), given)
    (wanted,) = torch.autograd.grad(plain(pool, given).sin().sum(), given)
    close(found, wanted)


def test_a_random_query_projection_is_drawn_again() -> None:
    pool, given = made(), rows()
    pool.attention.query_projection = nn.Sequential(
        pool.attention.query_projection, nn.Dropout(0.5)
    )
    pool.train()
    with torch.no_grad():
        assert not torch.equal(pool(given), pool(given))


def test_a_weight_of_another_kind_is_asked_each_time() -> None:
    class Rescaled(Tensor):
        factor = 1.0

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            found = super().__torch_function__(function, types, args, kwargs)
            return found * cls.factor if function is nn.functional.linear else found

    pool, given = made(), rows()
    projection = pool.attention.query_projection
    projection.weight = nn.Parameter(projection.weight.detach().as_subclass(Rescaled))
    with torch.no_grad():
        before = pool(given)
        Rescaled.factor = 2.0
        close(pool(given), plain(pool, given))
        assert not torch.allclose(pool(given), before)


def test_hooks_on_all_modules_are_called() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        pool(given)
        seen: list[nn.Module] = []
        handle = nn.modules.module.register_module_forward_hook(lambda each, *_: seen.append(each))
        pool(given)
        handle.remove()
    assert pool.attention.query_projection in seen


@pytest.mark.parametrize("grad", [True, False])
def test_a_compiled_pool_keeps_nothing(grad: bool) -> None:
    torch.compiler.reset()
    pool = made()
    compiled = torch.compile(pool, fullgraph=True, dynamic=True, backend="aot_eager")
    with nullcontext() if grad else torch.no_grad():
        for b, s in ((3, 7), (2, 11)):
            given = rows(b, s)
            close(compiled(given), plain(pool, given))
            with torch.no_grad():
                pool(given)
                pool.queries.weight.mul_(1.5)
                pool.attention.key_projection.weight.mul_(1.5)
            close(compiled(given), plain(pool, given))


def test_an_exported_pool_holds_the_weights_and_not_what_was_kept() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        before = pool(given)
        exported = torch.export.export(pool, (given,)).module()
        close(exported(given), before)
        for parameter in exported.parameters():
            parameter.mul_(1.5)
        pool.load_state_dict(exported.state_dict())
        close(exported(given), plain(pool, given))


def test_what_was_computed_without_numbers_is_not_kept() -> None:
    pool, given = made(), rows()
    with torch.no_grad():
        with FakeTensorMode(allow_non_fake_inputs=True) as fake:
            assert pool(fake.from_tensor(given)).shape == (3, 2, 12)
        close(pool(given), plain(pool, given))


def test_form_is_the_cost_models_or_the_one_that_is_named(folds: list[int]) -> None:
    with torch.no_grad():
        few, many = AttentionPool(64, 4), AttentionPool(64, 4, queries=2000)
        few(torch.randn(2, 997, 64))
        assert folds == [1]
        many(torch.randn(2, 997, 64))
        assert folds == [1]
        many.form = "raw"
        many(torch.randn(2, 50, 64))
        assert folds == [1, 1]
        few.attention.key_norm = nn.LayerNorm(16)
        few.form = "raw"
        with pytest.raises(xa.ContractError, match="key norm does not commute"):
            few(torch.randn(2, 50, 64))


def test_dropout_acts_in_training_only() -> None:
    pool, given = made(dropout=0.5), rows()
    assert torch.equal(pool(given), pool(given))
    pool.train()
    assert not torch.equal(pool(given), pool(given))
    torch.manual_seed(3)
    found = pool(given)
    torch.manual_seed(3)
    close(found, plain(pool, given))


def test_what_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(xa.ContractError, match="`queries`"):
        AttentionPool(8, 2, queries=0)
    with pytest.raises(xa.ContractError, match="`batch`"):
        LearnedQueries(2, 8)(-1)
    pool = made()
    with pytest.raises(xa.ContractError, match="`rows` must be of width 5"):
        pool(torch.randn(3, 7, 6).double())
    pool.queries = replaced_batch = nn.Embedding(2, 12).double()
    replaced_batch.forward = lambda _: torch.randn(2, 2, 12).double()
    with pytest.raises(xa.ContractError, match=r"`queries` must be a module that gives rows"):
        pool(rows())
