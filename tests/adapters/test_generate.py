"""Adopted models generate as users call them: settings, inputs and precisions."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from benchmarks.same_generation import compare, differences, generate
from benchmarks.tiny_models import VOCABULARY, build, inputs
from crossattention.adapters import adopt, adopted, release

NAMES = ["BART", "T5", "Whisper", "TrOCR"]
BEAMS = {"num_beams": 3}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "settings",
    [
        {"num_beams": 3, "do_sample": True},
        {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
        {"num_beams": 3, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3},
        {"num_beams": 2, "forced_eos_token_id": 2, "min_new_tokens": 4},
        {"cache_implementation": "static", "num_beams": 2},
        {"output_hidden_states": True, "output_logits": True},
        {"decoder_input_ids": torch.tensor([[3, 5, 9]] * 3), "num_beams": 2},
    ],
    ids=["beam samples", "penalty", "processors", "forced", "static", "hidden", "prompt"],
)
def test_settings(name: str, settings: dict[str, object]) -> None:
    model = build(name)
    given = inputs(model)
    if "decoder_input_ids" in settings:
        assert (
            compare(model, given | {"decoder_input_ids": settings["decoder_input_ids"]}, BEAMS)
            == []
        )
    else:
        assert compare(model, given, settings) == []


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("name", NAMES)
def test_attention_maps(name: str, form: str) -> None:
    model = build(name)
    model.set_attn_implementation("eager")
    given, settings = inputs(model), {"num_beams": 2, "output_attentions": True}
    stock = generate(model, given, settings)
    with adopted(model, form):
        ours = generate(model, given, settings)
    assert differences(stock, ours) == []
    assert len(stock.cross_attentions) == len(ours.cross_attentions) > 0
    for left, right in zip(stock.cross_attentions, ours.cross_attentions, strict=True):
        for a, b in zip(left, right, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_padding_on_the_left(form: str) -> None:
    model = build("BART")
    given = {name: each.flip(1) for name, each in inputs(model).items()}
    assert given["attention_mask"][-1, 0] == 0
    assert compare(model, given, BEAMS, form) == []


def test_a_source_of_which_nothing_may_be_read() -> None:
    model = build("BART")
    given = inputs(model)
    given["attention_mask"][1] = 0
    assert compare(model, given, BEAMS) == []


def test_embedded_inputs() -> None:
    model = build("T5")
    given = inputs(model)
    given["inputs_embeds"] = model.get_input_embeddings()(given.pop("input_ids"))
    assert compare(model, given, BEAMS) == []


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_the_callers_encoder_output_is_left_as_it_is(form: str) -> None:
    model = build("BART")
    given = inputs(model)
    rows = model.get_encoder()(**given).last_hidden_state
    own = BaseModelOutput(last_hidden_state=rows)
    passed = {"encoder_outputs": own, "attention_mask": given["attention_mask"]}
    stock = generate(model, given, BEAMS)
    with adopted(model, form):
        for _ in range(2):  # stock raises or grows on the second
            assert differences(stock, generate(model, passed, BEAMS)) == []
            generate(model, passed, BEAMS | {"use_cache": False})
    assert own.last_hidden_state is rows
    assert list(own) == ["last_hidden_state"] and len(vars(own)) == len(vars(BaseModelOutput(rows)))


def test_assisted_decoding() -> None:
    model, helper = build("BART"), build("BART")
    with torch.no_grad():
        helper.final_logits_bias.add_(torch.randn(1, VOCABULARY))
    given = inputs(model, batch=1)
    settings = {"assistant_model": helper, "max_new_tokens": 9}
    assert compare(model, given, settings) == []
    with adopted(helper):
        assert compare(model, given, settings) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    model = build(name).to(dtype)
    given = {
        key: each.to(dtype) if each.is_floating_point() else each
        for key, each in inputs(model).items()
    }
    settings = {"max_new_tokens": 2}
    stock = generate(model, given, settings)
    with adopted(model):
        ours = generate(model, given, settings)
    assert torch.equal(stock.sequences[:, :2], ours.sequences[:, :2])
    limit = 0.02 * max(score[score > -1e6].abs().max().item() for score in stock.scores)
    torch.testing.assert_close(stock.scores[0], ours.scores[0], atol=limit, rtol=0)


def test_a_cache_goes_on_where_it_stopped() -> None:
    model = build("T5")
    given, settings = inputs(model), {"max_new_tokens": 3}

    def twice() -> object:
        first = generate(model, given, settings)
        go_on = given | {"decoder_input_ids": first.sequences, "cache": first.cache}
        return generate(model, go_on, settings)

    stock = twice()
    with adopted(model):
        assert differences(stock, twice()) == []


def test_rows_of_a_shared_cache_are_selected() -> None:
    model = build("BART")
    with adopted(model):
        cache = generate(model, inputs(model), {"num_return_sequences": 2, "do_sample": True}).cache
    keys = cache.cross_attention_cache.layers[0].keys
    cache.batch_select_indices(torch.tensor([5, 0, 1]))
    assert torch.equal(cache.cross_attention_cache.layers[0].keys, keys[[2, 0, 0]])
    cache.batch_repeat_interleave(2)
    assert cache.self_attention_cache.layers[0].keys.shape[0] == 6
    cache.crop(-1)
    cache.reset()
    assert cache.get_seq_length() == 0


@pytest.mark.parametrize("name", NAMES)
def test_training_is_what_it_was(name: str) -> None:
    def step(model: PreTrainedModel) -> list[torch.Tensor]:
        model.train()
        labels = torch.arange(12).view(3, 4) + 4
        with torch.random.fork_rng():
            torch.manual_seed(7)
            loss = model(**inputs(model), labels=labels).loss
            loss.backward()
        grads = [each.grad for each in model.parameters() if each.grad is not None]
        return [loss.detach(), *grads]

    left = step(build(name))
    right = step(adopt(build(name)))
    assert len(left) == len(right) > 10
    assert all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_in_training_mode_sources_are_not_shared() -> None:
    model = build("BART").train()
    assert compare(model, inputs(model), BEAMS) == []


@pytest.mark.parametrize("before", ["eager", "sdpa"])
def test_an_implementation_that_is_set_afterwards_is_kept(before: str) -> None:
    model = build("BART")
    model.set_attn_implementation(before)
    adopt(model)
    other = "sdpa" if before == "eager" else "eager"
    model.set_attn_implementation(other)
    generate(model, inputs(model), BEAMS)
    release(model)
    assert model.config._attn_implementation == other


def test_two_models_of_one_config() -> None:
    first = build("BART")
    second = type(first)(first.config).eval()
    second.load_state_dict(first.state_dict())
    given = inputs(first)
    stock = generate(first, given, BEAMS)
    adopt(first)
    assert differences(stock, generate(second, given, BEAMS)) == []
    adopt(second)
    release(first)
    for model in (first, second):
        assert differences(stock, generate(model, given, BEAMS)) == []
    release(second)
    assert first.config._attn_implementation == "sdpa"


@pytest.mark.slow
def test_a_compiled_forward_writes_the_same() -> None:
    model = build("BART")
    given = inputs(model)
    stock = generate(model, given, BEAMS | {"max_new_tokens": 3})
    with adopted(model):
        twin = copy.copy(model)
        twin.forward = torch.compile(model.forward, backend="eager")
        assert differences(stock, generate(twin, given, BEAMS | {"max_new_tokens": 3})) == []
