from __future__ import annotations

import torch

import crossattention as xa
from crossattention.attention.cheapest import Cheapest
from crossattention.attention.choose import KERNELS, choose
from crossattention.kernels.contract import Problem, Score
from crossattention.kernels.costs import DTYPES, SHIPPED, Rate, Table
from crossattention.mask import Mask

SLOW, QUICK = Rate(1.0, 1e9, 1e9, 0.0, 0.0), Rate(1e-9, 1e12, 1e12, 0.0, 0.0)


def favouring(name: str, *unknown: str) -> Table:
    """Make a table that puts one kernel far ahead, and does not know some."""
    rates = {
        kernel.name: QUICK if kernel.name == name else SLOW
        for kernel in KERNELS
        if kernel.name not in unknown
    }
    return Table(f"{name}.json", dict.fromkeys(DTYPES, rates))


def problem(dropout: float = 0.0) -> Problem:
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    return Problem(query, key, key, None, Mask(), Score(0.5), dropout)


def test_a_table_decides() -> None:
    for name in ("reference", "matmul", "fused"):
        kernel = Cheapest(favouring(name))
        assert kernel.choose(problem()).name == name and kernel.refuses(problem()) == []
        assert kernel.cost(problem()) == kernel.choose(problem()).cost(problem())
        wanted = choose(problem(), name).run(problem()).value
        assert torch.equal(kernel.run(problem()).value, wanted)


def test_what_refuses_or_is_unknown_is_not_chosen() -> None:
    assert Cheapest(favouring("fused")).choose(problem(dropout=0.5)).name != "fused"
    table = favouring("fused", "fused", "native")
    assert Cheapest(table).choose(problem()).name in ("reference", "matmul")


def test_the_shipped_table_is_the_default_and_auto() -> None:
    assert Cheapest().table is SHIPPED and Cheapest().name == "auto"
    assert Cheapest().choose(problem()) is choose(problem(), "auto")


def test_it_is_named_wherever_a_kernel_may_be() -> None:
    given = problem()
    tensors = (given.query, given.key, given.value)
    for name in ("matmul", "fused"):
        kernel = Cheapest(favouring(name))
        wanted = xa.attend(*tensors, kernel=name)
        assert torch.equal(xa.attend(*tensors, kernel=kernel), wanted)
        found = xa.explain(*tensors, kernel=kernel)
        assert (found.chosen, found.table) == (name, f"{name}.json")
        assert len(found.kernels) == len(KERNELS)
        assert str(found).endswith(f"table: {name}.json")
    assert xa.explain(*tensors).table == SHIPPED.name


def test_a_layer_goes_by_the_table_it_is_given() -> None:
    torch.manual_seed(1)
    layer = xa.CrossAttention(12, 3).eval()
    query, rows = torch.randn(2, 5, 12), torch.randn(2, 7, 12)
    with torch.no_grad():
        for name in ("reference", "matmul", "fused"):
            layer.kernel = name
            wanted = layer(query, rows)
            layer.kernel = Cheapest(favouring(name))
            assert torch.equal(layer(query, rows), wanted)


def test_it_compiles() -> None:
    torch.compiler.reset()
    kernel = Cheapest(favouring("matmul"))

    def read(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return xa.attend(query, key, key, kernel=kernel)

    compiled = torch.compile(read, fullgraph=True, dynamic=True, backend="aot_eager")
    for b, s in ((2, 7), (3, 5)):
        query, key = torch.randn(b, 3, 2, 4), torch.randn(b, 3, s, 4)
        torch.testing.assert_close(compiled(query, key), read(query, key))
