"""K3, axes and order: batch, heads, rows and memory rows may be renamed, never confused."""

from __future__ import annotations

import pytest
import torch

import crossattention as xa
from cases.book import Case, find, load
from cases.draws import problem, some_visible
from cases.paths import KERNELS, Path, compute, offered
from cases.runner import EVERY_PATH, agree, check, every_form, name

CASES = load("k3_axes")
AXES = {"query": "bht", "key": "bgs", "value": "bgs", "upstream": "bht", "visible": "bhts",
        "bias": "bhts", "output": "bht", "weights": "bhts", "lse": "bht"}  # fmt: skip


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


def permuted(tensor: torch.Tensor, axes: str, order: dict[str, torch.Tensor]) -> torch.Tensor:
    """Permute each axis that has an order; an axis of size 1 stays."""
    for position, axis in enumerate(axes):
        if axis in order and tensor.shape[position] > 1:
            tensor = tensor.index_select(position, order[axis])
    return tensor


@pytest.mark.parametrize("axis", ["b", "h", "t", "s"])
@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_a_permuted_axis_permutes_the_results(path: Path, axis: str) -> None:
    torch.manual_seed(6)
    given = problem() | {"visible": some_visible(3, 4, 5, 7)}
    given["bias"] = torch.randn(1, 4, 1, 7, dtype=torch.float64)
    orders = {"b": [2, 0, 1], "t": [3, 1, 4, 0, 2], "s": [3, 0, 6, 2, 5, 1, 4]}
    order = {axis: torch.tensor(orders.get(axis, [3, 2, 0, 1]))}
    if axis == "h":  # heads move with the memory head that they share
        order["g"] = torch.tensor([1, 0])
    moved = {n: permuted(x, AXES[n], order) for n, x in given.items()}
    wanted = offered(path, ("query", "key", "value", "bias"))
    straight, found = compute(given, path, wanted), compute(moved, path, wanted)
    expected = {n: permuted(straight[n], AXES[n], order) for n in AXES if n in straight}
    grads = straight.get("grads", {})
    expected["grads"] = {n: permuted(x, AXES[n], order) for n, x in grads.items()}
    agree(found, expected) if wanted else agree(found, {**expected, "grads": {}})


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_one_sequence_at_a_time(path: Path) -> None:
    torch.manual_seed(7)
    given = problem() | {"visible": some_visible(3, 4, 5, 7), "lengths": [7, 3, 5]}
    whole = compute(given, path)
    for row in range(3):
        alone = compute({n: x[row : row + 1] for n, x in given.items()}, path)
        agree({n: whole[n][row : row + 1] for n in ("output", "weights")}, alone)


def test_a_mask_of_flattened_batch_and_heads_is_refused() -> None:
    given = find(CASES, "masks of two sequences, three heads").tensors(torch.float64)
    streams = [given[n] for n in ("query", "key", "value")]
    flat = given["visible"].expand(2, 3, 1, 2).flatten(0, 1)
    with pytest.raises(xa.ContractError, match=r"`visible` must be of shape .*\[6, 1, 2\]"):
        xa.attend(*streams, visible=flat)
    with pytest.raises(xa.ContractError, match="`bias` must be of shape"):
        xa.attend(*streams, bias=flat.double())
    with pytest.raises(xa.ContractError, match="`visible` must be of shape"):
        xa.CrossAttention(3, 3)(torch.ones(2, 1, 3), torch.ones(2, 2, 3), visible=flat)


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_heads_share_as_if_each_had_a_copy(path: Path) -> None:
    case = find(CASES, "six heads over three")
    given = case.tensors(torch.float64)
    copies = {n: given[n].repeat_interleave(2, 1) for n in ("key", "value")}
    agree(compute(given, path), compute(given | copies, path))


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
@pytest.mark.parametrize("cells", ["random", "one each"])
def test_outputs_lie_in_the_hull_of_what_is_visible(path: Path, cells: str) -> None:
    torch.manual_seed(8)
    given = problem() | {"visible": some_visible(3, 4, 5, 7)}
    if cells == "one each":
        given["visible"] = torch.arange(7) == torch.randint(7, (3, 4, 5, 1))
    found = compute(given, path)
    values = given["value"].repeat_interleave(2, 1)[:, :, None].expand(-1, -1, 5, -1, -1)
    hidden = ~found["see"][..., None]
    low = values.masked_fill(hidden, torch.inf).amin(3)
    high = values.masked_fill(hidden, -torch.inf).amax(3)
    reads = found["see"].any(-1)
    inside = (found["output"] >= low - 1e-12) & (found["output"] <= high + 1e-12)
    assert bool(inside[reads].all())
    assert bool((found["weights"] >= 0).all())
    torch.testing.assert_close(found["weights"].sum(-1), reads.double())


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel != "fused"])
@pytest.mark.parametrize("form", ["attend", "projected", "raw"])
def test_the_order_is_scale_cap_bias_hide(kernel: str, form: str) -> None:
    torch.manual_seed(9)
    given = problem(h=2, g=2) | {"visible": some_visible(3, 1, 5, 7), "scale": 3.0, "softcap": 1.5}
    given["bias"] = torch.randn(3, 2, 5, 7, dtype=torch.float64)
    scores = 3.0 * given["query"] @ given["key"].transpose(2, 3)
    scores = 1.5 * torch.tanh(scores / 1.5) + given["bias"]
    weights = scores.masked_fill(~given["visible"], -torch.inf).softmax(-1).nan_to_num(0)
    found = compute(given, Path(form, kernel))
    agree(found, {"weights": weights, "output": weights @ given["value"]})
