"""diffusers' adopted `Attention` projects a prompt once, and never answers with an old one."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import Tensor, nn

from crossattention.adapters.adopt import adopt, release
from crossattention.adapters.parts.denoising import DenoisingAttention, TextProcessor
from crossattention.errors import ContractError

pytest.importorskip("diffusers")
from diffusers.models.attention_processor import (
    Attention,
    AttnProcessor,
    AttnProcessor2_0,
    FusedAttnProcessor2_0,
)

B, T, S, C, TEXT, H, D = 2, 5, 7, 10, 6, 3, 4
KINDS = {
    "plain": {},
    "biased": {"bias": True, "out_bias": False, "rescale_output_factor": 2.0},
    "residual": {"residual_connection": True, "norm_num_groups": 5},
    "normed text": {"cross_attention_norm": "layer_norm"},
    "grouped text": {"cross_attention_norm": "group_norm", "cross_attention_norm_num_groups": 3},
    "normed heads": {"qk_norm": "layer_norm"},
    "rms": {"qk_norm": "rms_norm"},
    "old": {"processor": AttnProcessor()},
    "old, unscaled": {"processor": AttnProcessor(), "scale_qk": False},
}


def drawn(**given: object) -> Attention:
    """Draw an attention over text, in float64."""
    made = Attention(C, cross_attention_dim=TEXT, heads=H, dim_head=D, **given).double().eval()
    for each in made.parameters():
        nn.init.normal_(each, std=0.4)
    return made


def streams() -> tuple[Tensor, Tensor]:
    """Draw image rows and text."""
    return torch.randn(B, T, C).double(), torch.randn(B, S, TEXT).double()


class Calls:
    """Count the calls of a map without watching it: through its class."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        linear = nn.functional.linear

        def counted(rows: Tensor, *given: Tensor) -> Tensor:
            self.rows.append(rows.shape[-1])
            return linear(rows, *given)

        monkeypatch.setattr(nn.functional, "linear", counted)

    @property
    def text(self) -> int:
        """How often rows as wide as the text have been mapped."""
        return self.rows.count(TEXT)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_stock(kind: str) -> None:
    torch.manual_seed(0)
    attn = drawn(**KINDS[kind])
    rows, text = streams()
    mask = torch.zeros(B, 1, S).double()
    mask[1, :, 4:] = -10000.0
    parameters = list(attn.parameters())
    stock = {}
    for name, given in (("all", {}), ("masked", {"attention_mask": mask})):
        want = attn(rows, encoder_hidden_states=text, **given)
        loss = want.square().sum()
        stock[name] = want, torch.autograd.grad(loss, parameters, allow_unused=True)
    adopt(attn)
    for name, given in (("all", {}), ("masked", {"attention_mask": mask})):
        got = attn(rows, encoder_hidden_states=text, **given)
        torch.testing.assert_close(got, stock[name][0])
        loss = got.square().sum()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for ours, theirs in zip(gradients, stock[name][1], strict=True):
            assert (ours is None) is (theirs is None)
            if ours is not None:
                torch.testing.assert_close(ours, theirs)
        with torch.no_grad():
            for _ in range(2):
                again = attn(rows, encoder_hidden_states=text, **given)
                torch.testing.assert_close(again, stock[name][0])


def test_text_is_projected_once_for_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    attn, text = drawn(), streams()[1]
    adopt(attn)
    calls = Calls(monkeypatch)
    with torch.no_grad():
        for _ in range(5):
            attn(streams()[0], encoder_hidden_states=text)
    assert calls.text == 2  # keys and values


class Adapter(nn.Module):
    """A low-rank adapter as LoRA's: switched, scaled and merged through `.data`."""

    def __init__(self, inner: nn.Linear) -> None:
        super().__init__()
        self.inner = inner
        self.down = nn.Parameter(torch.randn(2, inner.in_features).double())
        self.up = nn.Parameter(torch.randn(inner.out_features, 2).double())
        self.scaling, self.on = {"default": 0.5}, True
        self.merged: list[str] = []

    def forward(self, rows: Tensor) -> Tensor:
        """Map rows, with the adapter where it is on and not merged."""
        mapped = self.inner(rows)
        if self.on and not self.merged:
            mapped = mapped + (rows @ self.down.T) @ self.up.T * self.scaling["default"]
        return mapped

    def merge(self) -> None:
        """Add the adapter to the weight where torch does not see it."""
        self.inner.weight.data += self.up.data @ self.down.data * self.scaling["default"]
        self.merged.append("default")


CHANGES = {
    "the text is written to": lambda attn, text: text.mul_(2),
    "a weight is written to": lambda attn, text: attn.to_k.inner.weight.mul_(2),
    "the adapter is trained": lambda attn, text: attn.to_k.up.add_(1),
    "the adapter is scaled": lambda attn, text: attn.to_k.scaling.update(default=2.0),
    "the adapter is off": lambda attn, text: setattr(attn.to_k, "on", False),
    "the adapter is fused": lambda attn, text: (attn.to_k.merge(), attn.to_k.inner.weight.mul_(2)),
    "fused and unloaded": lambda attn, text: (
        attn.to_k.merge(),
        setattr(attn, "to_k", attn.to_k.inner),
    ),
    "weights are loaded": lambda attn, text: attn.load_state_dict(
        {name: 2 * each for name, each in attn.state_dict().items()}, assign=True
    ),
    "in half": lambda attn, text: attn.float().double(),
    "a hook": lambda attn, text: attn.to_v.register_forward_hook(lambda m, i, output: 2 * output),
}


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_old_is_answered(change: str) -> None:
    torch.manual_seed(0)
    attn = drawn()
    attn.to_k = Adapter(attn.to_k)
    adopt(attn)
    rows, text = streams()
    with torch.no_grad():
        before = attn(rows, encoder_hidden_states=text)
        CHANGES[change](attn, text)
        got = attn(rows, encoder_hidden_states=text)
        release(attn)
        torch.testing.assert_close(got, attn(rows, encoder_hidden_states=text))
    if change != "in half":
        assert change == "fused and unloaded" or not torch.allclose(got, before)


def test_another_text_of_the_same_shape() -> None:
    torch.manual_seed(0)
    attn = drawn()
    stock = copy.deepcopy(attn)
    adopt(attn)
    rows = streams()[0]
    with torch.no_grad():
        for _ in range(20):  # a freed text's address is likely to come back
            text = streams()[1]
            got = attn(rows, encoder_hidden_states=text)
            torch.testing.assert_close(got, stock(rows, encoder_hidden_states=text))
            del text


def test_what_is_kept_goes_with_the_text_and_with_copies() -> None:
    torch.manual_seed(0)
    attn = drawn()
    adopt(attn)
    rows, text = streams()
    with torch.no_grad():
        attn(rows, encoder_hidden_states=text)
    kept = attn.processor.kept
    key = weakref.ref(kept._entry[2][0])
    for other in (copy.deepcopy(attn), pickle.loads(pickle.dumps(attn))):
        assert isinstance(other.processor, TextProcessor)
        assert other.processor.kept._entry is None
    del text
    gc.collect()
    assert kept._entry is None
    assert key() is None


def test_training_and_inference_mode_keep_nothing() -> None:
    torch.manual_seed(0)
    attn = drawn()
    adopt(attn)
    rows, text = streams()
    attn(rows, encoder_hidden_states=text)
    assert attn.processor.kept._entry is None
    with torch.inference_mode():
        text = text.clone()
        before = attn(rows, encoder_hidden_states=text)
        text.mul_(2)
        assert not torch.allclose(attn(rows, encoder_hidden_states=text), before)


def test_self_attention_and_shapes_go_to_the_stock_processor() -> None:
    torch.manual_seed(0)
    attn = Attention(C, heads=H, dim_head=D).eval()
    assert not DenoisingAttention().knows(attn)
    crossed = drawn()
    image = torch.randn(B, C, 2, 3).double()
    text = streams()[1]
    want = crossed(image, encoder_hidden_states=text)
    adopt(crossed)
    assert torch.equal(crossed(image, encoder_hidden_states=text), want)


def test_release_gives_the_same_processor_back() -> None:
    attn = drawn()
    stock = attn.processor
    names = set(vars(attn))
    adopt(attn)
    assert type(attn) is Attention
    release(attn)
    assert attn.processor is stock
    assert set(vars(attn)) == names
    adopt(attn)
    mine = AttnProcessor2_0()
    attn.set_processor(mine)  # set by somebody since: not ours to take away
    release(attn)
    assert attn.processor is mine


def test_refusals() -> None:
    with pytest.raises(ContractError, match="FusedAttnProcessor2_0"):
        adopt(drawn(processor=FusedAttnProcessor2_0()))
    with pytest.raises(ContractError, match="kept between steps"):
        adopt(drawn(), "raw")
    with pytest.raises(ContractError, match="added"):
        adopt(drawn(added_kv_proj_dim=5))


def test_a_whole_denoiser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A U-Net over guidance's two halves: the text of each layer is projected once in all."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    net = UNet2DConditionModel(
        sample_size=4, in_channels=2, out_channels=2, layers_per_block=1,
        block_out_channels=(4, 8), norm_num_groups=2, cross_attention_dim=TEXT,
        attention_head_dim=2, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip
    text = torch.cat((torch.zeros(1, S, TEXT), torch.randn(1, S, TEXT)))
    latents = torch.randn(1, 2, 4, 4).repeat(2, 1, 1, 1)

    def denoise() -> Tensor:
        sample = latents
        for step in (3, 2, 1):
            sample = sample - 0.1 * net(sample, step, encoder_hidden_states=text).sample
        return sample

    with torch.no_grad():
        want = denoise()
        adopt(net)
        calls = Calls(monkeypatch)
        torch.testing.assert_close(denoise(), want)
        found = sum(DenoisingAttention().knows(module) for module in net.modules())
        assert calls.text == 2 * found > 0
        release(net)
        assert torch.equal(denoise(), want)
