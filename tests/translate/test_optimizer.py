import pytest
import torch

from crossattention.errors import ContractError
from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.translate.optimizer import build_optimizers, rate_at


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_every_parameter_has_one_optimizer_and_moves(name: str) -> None:
    torch.manual_seed(0)
    model = EncoderDecoder(Config(vocabulary=11, width=8, heads=2, feed_forward=12))
    built = build_optimizers(model, name, 0.01)
    held = [p for o in built for group in o.param_groups for p in group["params"]]
    assert len(held) == len({id(p) for p in held}) == len(list(model.parameters()))
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    for optimizer in built:
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        optimizer.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_rate_rises_and_falls_to_zero() -> None:
    for schedule in ("cosine", "linear"):
        rates = [rate_at(step, 2.0, 10, 50, schedule) for step in range(51)]
        assert rates[9] == max(rates) == 2.0 and rates[50] == pytest.approx(0.0)
        assert rates[:10] == sorted(rates[:10]) and rates[10:] == sorted(rates[10:], reverse=True)
    with pytest.raises(ContractError, match="`schedule`"):
        rate_at(20, 1.0, 10, 50, "flat")
    with pytest.raises(ContractError, match="`optimizer`"):
        build_optimizers(torch.nn.Linear(2, 2), "sgd", 0.0)
