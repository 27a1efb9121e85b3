"""A folded norm gives the same numbers as the norm and the map behind it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from crossattention import ContractError
from crossattention.nn import fold_norm

NORMS = [
    nn.LayerNorm(5, eps=1e-3),
    nn.LayerNorm(5, bias=False),
    nn.LayerNorm(5, elementwise_affine=False),
    nn.RMSNorm(5, eps=1e-3),
    nn.RMSNorm(5, elementwise_affine=False),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm", NORMS, ids=lambda norm: repr(norm))
def test_equals_norm_and_map(norm: nn.LayerNorm | nn.RMSNorm, bias: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(5, 3, bias).double().eval()
    norm = norm.double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    plain = type(norm)(5, eps=norm.eps, elementwise_affine=False)
    x = torch.randn(7, 5).double()
    before = [each.clone() for each in (*norm.parameters(), *linear.parameters())]
    folded = fold_norm(norm, linear)
    torch.testing.assert_close(folded(plain(x)), linear(norm(x)))
    torch.testing.assert_close([*norm.parameters(), *linear.parameters()], before)
    assert (folded.bias is not None) is (bias or getattr(norm, "bias", None) is not None)
    assert folded.weight.dtype == torch.float64 and not folded.training


@pytest.mark.parametrize(
    ("norm", "linear", "name"),
    [
        (nn.BatchNorm1d(5), nn.Linear(5, 3), "norm"),
        (nn.LayerNorm(4), nn.Linear(5, 3), "norm"),
        (nn.LayerNorm((2, 5)), nn.Linear(5, 3), "norm"),
        (nn.LayerNorm(5), nn.Identity(), "linear"),
    ],
)
def test_refuses(norm: nn.LayerNorm, linear: nn.Linear, name: str) -> None:
    with pytest.raises(ContractError, match=f"`{name}`"):
        fold_norm(norm, linear)
