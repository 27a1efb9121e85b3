"""The decoder's linear layers of an adopted model: which, with which weights, and given back."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration

from benchmarks.same_generation import differences, generate
from crossattention.adapters import adopt, adopted, release
from crossattention.adapters.hugging_face import few_rows
from crossattention.adapters.hugging_face.few_rows import FewRows
from crossattention.kernels.native.library import absent

GIVEN = {"input_ids": torch.tensor([[5, 6, 7, 8, 9, 2], [9, 8, 7, 6, 5, 2]])}
BEAMS = {"num_beams": 3}
needs_native = pytest.mark.skipif(absent() != "", reason="the native kernel is an optional part")


def wide() -> BartForConditionalGeneration:
    """Build a model of a width that the native kernel maps."""
    sizes = {"d_model": 32, "vocab_size": 97, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 2}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return BartForConditionalGeneration(BartConfig(**sizes, **heads, **layers)).eval()


def taken(model: nn.Module) -> list[str]:
    """Name the layers whose `forward` is ours."""
    kept = ((path, vars(each).get("forward")) for path, each in model.named_modules())
    return [path for path, each in kept if isinstance(getattr(each, "__self__", None), FewRows)]


def test_which_layers_are_taken_and_given_back() -> None:
    model = wide()
    names = {each.rpartition(".")[2] for each in taken(adopt(model))}
    assert names == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "lm_head"}
    assert not any("encoder." in each.replace("decoder.", "") for each in taken(model))
    assert not any(f"encoder_attn.{each}" in path for each in "kv" for path in taken(model))
    assert taken(release(model)) == []
    assert all("forward" not in vars(each) for each in model.modules())


@needs_native
@pytest.mark.parametrize("form", ["projected", "raw"])
def test_a_step_maps_its_rows_natively(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, mapped = wide(), []
    real = few_rows.linear
    monkeypatch.setattr(
        few_rows, "linear", lambda *given: mapped.append(given[0].shape) or real(*given)
    )
    stock = generate(model, GIVEN, BEAMS)
    assert not mapped
    with adopted(model, form):
        assert differences(stock, generate(model, GIVEN, BEAMS)) == []
    steps, each = stock.sequences.shape[1] - 1, 2 * (4 + 2 + 2) + 1
    assert len(mapped) == steps * each and {shape[0] for shape in mapped} == {6}


@needs_native
def test_a_weight_that_changes_is_seen_at_once() -> None:
    model = adopt(wide())
    rows = torch.ones(1, 32)
    with torch.no_grad():
        before = model.lm_head(rows)
        model.lm_head.weight.data.mul_(2)
        torch.testing.assert_close(model.lm_head(rows), 2 * before)
        model.lm_head.weight.data = torch.zeros(97, 32)
        assert not model.lm_head(rows).any()


@pytest.mark.parametrize("through", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_maps_with_its_own_weights(through: object) -> None:
    model = adopt(wide())
    twin = through(model)  # type: ignore[operator]
    with torch.no_grad():
        model.lm_head.weight.zero_()
        assert twin.lm_head(torch.ones(1, 32)).any()
    assert taken(twin) == taken(model) and taken(release(twin)) == []


def test_a_layer_that_was_given_a_forward_keeps_it() -> None:
    model = wide()
    own = model.lm_head.forward
    model.lm_head.forward = own
    assert "lm_head" not in taken(adopt(model))
    assert vars(release(model).lm_head)["forward"] is own


def test_layers_are_found_where_peft_has_put_them() -> None:
    peft = pytest.importorskip("peft")
    model = adopt(wide())
    config = peft.LoraConfig(target_modules=["q_proj", "fc1"], init_lora_weights=False)
    wrapped = peft.get_peft_model(model, config).eval()
    assert any("base_layer" in path for path in taken(wrapped))
    release(model)
    assert taken(wrapped) == []
