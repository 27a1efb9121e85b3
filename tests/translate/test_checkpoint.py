from pathlib import Path

import pytest
import torch
from torch import nn

from crossattention.errors import ContractError
from crossattention.translate.checkpoint import Position, load_checkpoint, save_checkpoint
from crossattention.translate.optimizer import build_optimizers


def _model(width: int = 5) -> nn.Module:
    return nn.Sequential(nn.Embedding(7, width), nn.Linear(width, 3))


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_restored_run_takes_the_same_next_step(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    model = _model()
    built = build_optimizers(model, name, 0.1)
    _step(model, built)
    average = [p.detach() + 1 for p in model.parameters()]
    place = Position(step=3, epoch=1, batch=2, best=4.5)
    save_checkpoint(tmp_path / "c", model, average, built, place)
    _step(model, built)
    drawn = torch.rand(3)

    other = _model()
    others = build_optimizers(other, name, 0.1)
    mean = [torch.zeros_like(p) for p in other.parameters()]
    assert load_checkpoint(tmp_path / "c", other, mean, others) == place
    assert all(torch.equal(a, b) for a, b in zip(mean, average, strict=True))
    _step(other, others)
    assert torch.equal(torch.rand(3), drawn)
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_foreign_or_broken_file_is_refused(tmp_path: Path) -> None:
    model = _model()
    average = [p.detach().clone() for p in model.parameters()]
    save_checkpoint(tmp_path / "c", model, average, [], Position())
    wider = _model(6)
    with pytest.raises(ContractError, match="checkpoint"):
        load_checkpoint(tmp_path / "c", wider, [p.detach() for p in wider.parameters()], [])
    (tmp_path / "c").write_bytes(b"cut off")
    with pytest.raises(ContractError, match="checkpoint"):
        load_checkpoint(tmp_path / "c", model, average, [])


def _step(model: nn.Module, built: list[torch.optim.Optimizer]) -> None:
    model(torch.rand(4).mul(7).long()).square().sum().backward()
    for optimizer in built:
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        optimizer.step()
        optimizer.zero_grad()
