"""What is asked of every adopted module: equal numbers, gradients, copies, pickles, release."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import torch
from torch import Tensor, nn

from crossattention.adapters.parts.contract import Part

Call = Callable[[nn.Module], Tensor]


def adopted(part: Part, module: nn.Module, form: str = "auto") -> nn.Module:
    """Adopt a copy of a module."""
    copied = copy.deepcopy(module)
    assert part.knows(copied)
    part.check(copied, form)
    part.adopt(copied, form)
    return copied


def same_numbers(part: Part, module: nn.Module, call: Call, form: str = "auto") -> None:
    """Results and the gradients of all parameters are the stock module's."""
    found = []
    for each in (module, adopted(part, module, form)):
        result = call(each)
        loss = result.square().sum()
        used = [p for p in each.parameters() if p.requires_grad]
        found.append((result, torch.autograd.grad(loss, used, allow_unused=True)))
        with torch.no_grad():
            torch.testing.assert_close(call(each), result)
    torch.testing.assert_close(found[1][0], found[0][0])
    for got, want in zip(found[1][1], found[0][1], strict=True):
        zeros = (torch.zeros_like(x) for x in (got, want) if x is not None)
        zero = next(zeros, torch.zeros(()))  # what only the softmax would see may be missing
        torch.testing.assert_close(zero if got is None else got, zero if want is None else want)


def lives_on(part: Part, module: nn.Module, call: Call) -> None:
    """Copies and pickles stay adopted, with weights of their own; release gives all back."""
    layer = adopted(part, module)
    assert type(layer) is type(module)
    assert list(layer.state_dict()) == list(module.state_dict())
    with torch.no_grad():
        want = call(module)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            torch.testing.assert_close(call(other), want)
            for parameter in other.parameters():
                parameter.data.mul_(1.5)
            stock = copy.deepcopy(other)
            part.release(stock)
            torch.testing.assert_close(call(other), call(stock))
            assert not torch.allclose(call(stock), want)
        torch.testing.assert_close(call(layer), want)
        part.release(layer)
        assert torch.equal(call(layer), want)
    for mine, theirs in zip(layer.modules(), module.modules(), strict=True):
        assert vars(mine).keys() == vars(theirs).keys()
