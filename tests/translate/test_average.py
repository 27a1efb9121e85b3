import pytest
import torch
from torch import nn

from crossattention.translate.average import follow, lent


def test_the_average_follows_and_is_lent() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Dropout())
    average = [torch.zeros_like(p) for p in model.parameters()]
    follow(average, model, step=90, decay=0.5)
    for mean, p in zip(average, model.parameters(), strict=True):
        torch.testing.assert_close(mean, 0.5 * p.detach())
    own = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(KeyError), lent(model, average):
        assert not model.training
        assert all(torch.equal(a, p) for a, p in zip(average, model.parameters(), strict=True))
        raise KeyError
    assert model.training
    assert all(torch.equal(a, p) for a, p in zip(own, model.parameters(), strict=True))


def test_early_steps_forget_the_start() -> None:
    model = nn.Linear(1, 1)
    average = [torch.zeros_like(p) for p in model.parameters()]
    follow(average, model, step=0, decay=0.999)
    torch.testing.assert_close(average[0], 0.9 * model.weight.detach())
