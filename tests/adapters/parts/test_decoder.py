"""An adopted `torch.nn.TransformerDecoder` decodes step by step what its forward gives at once."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from crossattention.adapters.parts.decoder import VERBS, Decoder
from crossattention.adapters.parts.multihead import Multihead
from crossattention.errors import ContractError

M, BEAMS, C, H, T, S = 2, 3, 10, 5, 7, 11


def decoder(layers: int = 2, **given: object) -> nn.TransformerDecoder:
    """Draw a decoder with a final norm, ready for use."""
    layer = nn.TransformerDecoderLayer(C, H, 13, **given)  # type: ignore[arg-type]
    made = nn.TransformerDecoder(layer, layers, norm=nn.LayerNorm(C)).double().eval()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


def adopt(module: nn.Module, form: str = "auto") -> nn.Module:
    """Adopt a module by its own part alone."""
    Decoder().check(module, form)
    Decoder().adopt(module, form)
    return module


def turned(module: nn.TransformerDecoder, stream: Tensor) -> Tensor:
    """Put a stream [b, t, c] into the decoder's layout."""
    return stream if module.layers[0].self_attn.batch_first else stream.transpose(0, 1)


def at_once(module: nn.TransformerDecoder, target: Tensor, rows: Tensor, padding: Tensor) -> Tensor:
    """Run the decoder's own forward with a causal mask; [b, t, c] in and out."""
    mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).double()
    hidden = torch.zeros(padding.shape).double().masked_fill(padding, -torch.inf)
    given = (turned(module, target), turned(module, rows))
    return turned(module, module(*given, tgt_mask=mask, memory_key_padding_mask=hidden))


KINDS = {
    "post": {},
    "pre": {"norm_first": True, "batch_first": True},
    "gelu": {"activation": "gelu", "bias": False, "batch_first": True},
}


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pieces", [(1,) * T, (3, 1, 2, 1)])
def test_steps_equal_forward(kind: str, form: str, pieces: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = decoder(**KINDS[kind])
    target = torch.randn(M * BEAMS, T, C).double()
    rows, lengths = torch.randn(M, S, C).double(), [S, S - 4]
    padding = torch.arange(S) >= torch.tensor(lengths)[:, None]
    want = at_once(
        module, target, rows.repeat_interleave(BEAMS, 0), padding.repeat_interleave(BEAMS, 0)
    )
    rows = rows.masked_fill(padding[..., None], torch.nan)  # beyond the lengths lies anything
    adopt(module, form)
    with torch.no_grad():
        memory = module.remember(turned(module, rows), lengths).shared_by(BEAMS)
        state, got = module.start(memory, capacity=2), []
        for piece in target.split(pieces, 1):
            output, state = module.step(turned(module, piece), memory, state)
            got.append(turned(module, output))
    torch.testing.assert_close(torch.cat(got, 1), want)
    assert state.length == T


def test_forward_is_as_it_was() -> None:
    torch.manual_seed(0)
    module = decoder()
    given = torch.randn(T, M, C).double(), torch.randn(S, M, C).double()
    want = module(*given)
    assert torch.equal(adopt(module)(*given), want)


def test_beams_move_with_memory_and_state() -> None:
    torch.manual_seed(0)
    module = adopt(decoder(batch_first=True))
    rows, first = torch.randn(M, S, C).double(), torch.randn(M * BEAMS, 1, C).double()
    memory = module.remember(rows).shared_by(BEAMS)
    _, state = module.step(first, memory, module.start(memory))
    chosen = torch.tensor([4, 4, 0, 5])
    kept, second = memory.select(chosen), torch.randn(4, 1, C).double()
    got, _ = module.step(second, kept, state.select(chosen))
    owners = torch.arange(M).repeat_interleave(BEAMS)[chosen]
    both = torch.cat((first[chosen], second), 1)
    want = at_once(module, both, rows[owners], torch.zeros(4, S, dtype=torch.bool))
    torch.testing.assert_close(got, want[:, 1:])


def test_a_layer_alone_steps_as_well() -> None:
    torch.manual_seed(0)
    layer = adopt(decoder(1, batch_first=True).layers[0])
    rows, target = torch.randn(M, S, C).double(), torch.randn(M, 1, C).double()
    memory = layer.remember(rows)
    got, _ = layer.step(target, memory, layer.start(memory))
    torch.testing.assert_close(got, layer(target, rows))


def test_visible_hides() -> None:
    torch.manual_seed(0)
    module = adopt(decoder(batch_first=True))
    rows, target = torch.randn(M, S, C).double(), torch.randn(M, 1, C).double()
    memory = module.remember(rows)
    visible = torch.arange(S).lt(4)[None, None, None]
    got, _ = module.step(target, memory, module.start(memory), visible=visible)
    shorter = module.remember(rows[:, :4])
    want, _ = module.step(target, shorter, module.start(shorter))
    torch.testing.assert_close(got, want)


def test_the_memory_is_projected_once() -> None:
    torch.manual_seed(0)
    module = adopt(decoder(batch_first=True))
    target = torch.randn(M, 1, C).double()
    steps = []
    with torch.no_grad():
        for s in (S, 10 * S):
            memory = module.remember(torch.randn(M, s, C).double())
            state = module.start(memory)
            with FlopCounterMode(display=False) as counted:
                module.step(target, memory, state)
            steps.append(counted.get_total_flops())
    reading = 2 * 2 * M * (9 * S) * 2 * C  # two layers: q·k and weights·v over the rows added
    assert steps[1] - steps[0] <= reading  # torch does not count its fused kernel


def test_a_memory_is_refused_when_weights_changed_and_by_a_copy() -> None:
    module = adopt(decoder(batch_first=True))
    memory = module.remember(torch.randn(M, S, C).double())
    target, state = torch.randn(M, 1, C).double(), module.start(memory)
    copied = copy.deepcopy(module)
    with pytest.raises(ContractError, match="remember"):
        copied.step(target, memory, state)
    with torch.no_grad():
        module.layers[1].multihead_attn.in_proj_weight.mul_(2)
    with pytest.raises(ContractError, match="stale"):
        module.step(target, memory, state)


def test_gradients_flow_through_steps() -> None:
    torch.manual_seed(0)
    module = decoder(batch_first=True)
    rows = torch.randn(M, S, C).double().requires_grad_()
    target = torch.randn(M, 3, C).double()
    none = torch.zeros(M, S, dtype=torch.bool)
    given = [rows, *module.parameters()]
    want = torch.autograd.grad(at_once(module, target, rows, none).square().sum(), given)
    adopt(module)
    memory = module.remember(rows)
    state, loss = module.start(memory), torch.zeros(()).double()
    for piece in target.split(1, 1):
        output, state = module.step(piece, memory, state)
        loss = loss + output.square().sum()
    for got, wanted in zip(torch.autograd.grad(loss, given), want, strict=True):
        torch.testing.assert_close(got, wanted)


def test_copies_and_pickles_step_by_their_own_weights() -> None:
    torch.manual_seed(0)
    module = adopt(decoder(batch_first=True))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.step.__self__.decoder is other
        rows, target = torch.randn(M, S, C).double(), torch.randn(M, 1, C).double()
        with torch.no_grad():
            other.layers[0].linear1.weight.mul_(2)
        memory = other.remember(rows)
        got, _ = other.step(target, memory, other.start(memory))
        torch.testing.assert_close(got, other(target, rows))


def test_release_leaves_nothing() -> None:
    module = decoder()
    names = set(vars(module))
    adopt(module)
    assert all(hasattr(module, verb) for verb in VERBS)
    Decoder().release(module)
    assert set(vars(module)) == names


def test_other_layers_are_refused() -> None:
    class Mine(nn.TransformerDecoderLayer):
        def forward(self, tgt: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
            return tgt

    with pytest.raises(ContractError, match="TransformerDecoderLayer"):
        adopt(nn.TransformerDecoder(Mine(C, H), 1))
    strange = decoder()
    strange.layers[0].multihead_attn = nn.MultiheadAttention(C, H, add_bias_kv=True)
    with pytest.raises(ContractError, match="one by one"):
        adopt(strange)
    named = decoder()
    named.step = 3  # type: ignore[assignment]
    with pytest.raises(ContractError, match="step"):
        adopt(named)
    for attention in strange.modules():
        if Multihead().knows(attention):
            Multihead().check(attention, "auto")
