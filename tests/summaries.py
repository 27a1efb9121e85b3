"""The laws of every module that turns any number of rows into n rows: `module(rows, lengths)`.

Each law takes a module in float64 and the width of the rows that it reads, and asserts.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from crossattention import ContractError, Memory

LENGTHS = [7, 4, 0]


def rows_of(width: int) -> Tensor:
    """Three inputs of seven rows each, of which `LENGTHS` are real."""
    return torch.randn(len(LENGTHS), max(LENGTHS), width, dtype=torch.float64)


def disturb(module: nn.Module) -> nn.Module:
    """Give every parameter, norms and biases too, numbers of its own; in float64."""
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, std=0.5)
        if name.endswith("norm.weight"):
            nn.init.uniform_(parameter, 0.5, 1.5)
    return module.double()


def check_padding(module: nn.Module, width: int) -> None:
    """A padded batch equals its inputs one by one."""
    rows = rows_of(width)
    found = module(rows, LENGTHS)
    for one, length, given in zip(found, LENGTHS, rows, strict=True):
        torch.testing.assert_close(one, module(given[None, :length])[0])
    assert not torch.allclose(found, module(rows), atol=1e-3)


def check_permutation(module: nn.Module, width: int) -> None:
    """Rows in another order change nothing."""
    rows = rows_of(width)
    order = torch.randperm(rows.shape[1])
    torch.testing.assert_close(module(rows[:, order]), module(rows))


def check_garbage(module: nn.Module, width: int) -> None:
    """Rows beyond the lengths may hold anything, forward and backward."""
    clean = rows_of(width)
    beyond = torch.arange(clean.shape[1]) >= torch.tensor(LENGTHS)[:, None]
    results = []
    for filling in (0.0, torch.nan, torch.inf):
        rows = clean.masked_fill(beyond[..., None], filling).requires_grad_()
        module.zero_grad()
        found = module(rows, LENGTHS)
        found.square().sum().backward()
        results.append([found, rows.grad, *gradients(module).values()])
        assert not rows.grad[beyond].any()
    for other in results[1:]:
        torch.testing.assert_close(other, results[0])
        assert all(bool(each.isfinite().all()) for each in other)


def check_empty(module: nn.Module, width: int) -> None:
    """An input without rows gives finite numbers that no row has touched, and gradients too."""
    found = module(rows_of(width), [0, 0, 0])
    assert bool(found.isfinite().all())
    none = module(torch.zeros(3, 0, width, dtype=torch.float64))
    torch.testing.assert_close(none, found)
    found.square().sum().backward()
    assert all(each is None or bool(each.isfinite().all()) for each in gradients(module).values())


def check_forms(module: Any, width: int) -> None:
    """The raw form and the projected form give the same numbers and gradients."""
    clean, results, kept = rows_of(width), [], []
    for form in ("raw", "projected"):
        module.form = form
        module.zero_grad()
        rows = clean.clone().requires_grad_()
        memory = module.remember(rows, LENGTHS)
        kept.append([content.key is not None for content in memory.contents.values()])
        found = module(memory)
        found.square().sum().backward()
        results.append([found, rows.grad, *gradients(module).values()])
    assert not any(kept[0]) and all(kept[1])
    torch.testing.assert_close(results[1], results[0])


def check_remembered(module: Any, width: int) -> None:
    """Remembered equals fresh; a memory of other weights is refused, and so is another's."""
    rows = rows_of(width)
    for form in ("raw", "projected"):
        module.form = form
        memory = module.remember(rows, LENGTHS)
        torch.testing.assert_close(module(memory), module(rows, LENGTHS))
        with pytest.raises(ContractError, match="made by the layer that reads it"):
            module(Memory.of(rows))
        with pytest.raises(ContractError, match="lengths"):
            module(memory, LENGTHS)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if "value_projection" in name:
                    parameter.mul_(2)
        with pytest.raises(ContractError, match="stale"):
            module(memory)


def check_sharing(module: Any, width: int) -> None:
    """Beams that share a memory equal copies; a selection equals a gather."""
    for form in ("raw", "projected"):
        module.form = form
        memory = module.remember(rows_of(width), LENGTHS)
        alone = module(memory)
        torch.testing.assert_close(module(memory.shared_by(2)), alone.repeat_interleave(2, 0))
        chosen = torch.tensor([2, 0, 0, 1])
        torch.testing.assert_close(module(memory.select(chosen)), alone[chosen])


def check_gradients(module: nn.Module, width: int, without: str = "key_projection.bias") -> None:
    """Gradients reach every parameter, and the rows; `without` is what a softmax cannot see."""
    rows = rows_of(width).requires_grad_()
    module(rows).square().sum().backward()
    assert float(rows.grad.abs().min()) > 0
    for name, gradient in gradients(module).items():
        assert gradient is not None, name
        seen = float(gradient.abs().max()) > 1e-9
        assert seen != (bool(without) and name.endswith(without)), name


def check_refusals(module: Any, width: int) -> None:
    """Rows of another width are refused by name."""
    wrong = torch.zeros(1, 2, width + 1, dtype=torch.float64)
    with pytest.raises(ContractError, match=rf"width {width}|\[m, s, {width}\]"):
        module(wrong)
    with pytest.raises(ContractError, match="rows"):
        module(wrong[0])


LAWS = (
    check_padding,
    check_permutation,
    check_garbage,
    check_empty,
    check_forms,
    check_remembered,
    check_sharing,
    check_refusals,
)


def gradients(module: nn.Module) -> dict[str, Tensor | None]:
    """The gradient of every parameter, by name."""
    return {name: parameter.grad for name, parameter in module.named_parameters()}
