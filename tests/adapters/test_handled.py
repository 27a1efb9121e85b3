"""Adopted models as people handle them: copied, wrapped, pruned, quantised, taken apart."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module, remove_hook_from_module
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.generation import GenerationMixin

import crossattention
from benchmarks.same_generation import compare, differences, generate
from benchmarks.tiny_models import build, inputs
from crossattention.adapters import adopt, adopted, explain_model, release
from crossattention.adapters.hugging_face.cache import SharedCache
from crossattention.errors import ContractError

SOURCE = Path(crossattention.__file__).parents[1]
BEAMS = {"num_beams": 3}
CLOSED = ["TrOCR", "LED", "Moonshine, padded heads"]


def shares(model: PreTrainedModel) -> bool:
    """Whether a model's sources are shared among its beams."""
    return isinstance(generate(model, inputs(model), BEAMS).cache, SharedCache)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["BART", *CLOSED])
def test_two_models_of_the_same_modules(name: str, when: str) -> None:
    first = build(name)
    forwards = {path: vars(each).get("forward") for path, each in first.named_modules()}
    given = inputs(first)
    stock = generate(first, given, BEAMS)
    if when == "after":
        second = copy.copy(adopt(first))
    else:
        second = copy.copy(first)
        adopt(first), adopt(second)
    assert shares(first) and shares(second)
    release(first)
    for model in (first, second):
        assert differences(stock, generate(model, given, BEAMS)) == []
    assert not shares(second)  # until it is released and adopted anew
    release(second)
    assert differences(stock, generate(second, given, BEAMS), 0.0) == []
    assert {path: vars(each).get("forward") for path, each in first.named_modules()} == forwards


def test_a_shallow_copy_of_a_model_that_is_gone() -> None:
    model = build("BART")
    given = inputs(model)
    stock = generate(model, given, BEAMS)
    twin = copy.copy(adopt(model))
    del model
    with pytest.raises(ContractError, match="a shallow copy of one that is gone; release it and"):
        generate(twin, given, BEAMS)
    assert differences(stock, generate(adopt(release(twin)), given, BEAMS)) == []


@pytest.mark.parametrize("name", CLOSED)
def test_what_accelerate_puts_above_us_stays(name: str) -> None:
    class Count(ModelHook):
        calls = 0

        def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return args, kwargs

    model, hook = adopt(build(name)), Count()
    found = [each for path, each in model.named_modules() if path.endswith("encoder_attn")]
    add_hook_to_module(found[0], hook)
    assert shares(model) and hook.calls > 0
    release(model)
    before = hook.calls
    assert not shares(model) and hook.calls > before
    remove_hook_from_module(found[0])
    assert found[0].forward.__func__ is type(found[0]).forward
    add_hook_to_module(found[0], hook)
    adopt(model)
    remove_hook_from_module(found[0])  # and ours with it
    assert not shares(model)
    assert compare(release(model), inputs(model), BEAMS) == []


@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel])
def test_a_model_inside_a_wrapper_of_torchs(wrap: Any) -> None:
    model = build("T5")
    wrapped = adopt(wrap(model))
    assert shares(model)
    assert explain_model(wrapped, rows=7) == explain_model(model, rows=7)
    release(wrapped)
    assert not shares(model)


@pytest.mark.parametrize("name", ["BART", "T5", "TrOCR"])
def test_layers_that_are_taken_away(name: str) -> None:
    model = adopt(build(name))
    given = inputs(model)
    holder = {"BART": "model.decoder", "T5": "decoder", "TrOCR": "decoder.model.decoder"}[name]
    decoder, layers = model.get_submodule(holder), "block" if name == "T5" else "layers"
    whole = getattr(decoder, layers)
    setattr(decoder, layers, whole[:1])
    assert shares(model)
    ours = generate(model, given, BEAMS)
    assert differences(generate(release(model), given, BEAMS), ours) == []
    adopt(model)
    setattr(decoder, layers, whole[1:])
    with pytest.raises(ContractError, match="for each decoder layer, numbered, got 1 of class"):
        generate(model, given, BEAMS)
    setattr(decoder, layers, whole)
    assert not shares(release(model)) and shares(adopt(model))


def test_a_model_whose_linear_layers_are_quantised() -> None:
    model = build("T5")
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear})
    assert compare(quantised, inputs(model), BEAMS) == []
    assert explain_model(quantised, rows=7).chosen == "projected"
    with pytest.raises(ContractError, match="the key projection is a Linear, not nn.Linear"):
        adopt(quantised, "raw")


@pytest.mark.parametrize("name", ["BART", "TrOCR"])
def test_an_adopted_model_is_explained_as_it_was(name: str) -> None:
    model = build(name)
    stock = explain_model(model, beams=3, rows=7)
    with adopted(model):
        assert explain_model(model, beams=3, rows=7) == stock


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("name", ["T5", "BART", "TrOCR"])
def test_gradients_flow_through_what_is_generated(name: str, form: str) -> None:
    def step(model: PreTrainedModel) -> dict[str, Tensor]:
        with torch.enable_grad():
            done = inspect.unwrap(GenerationMixin.generate)(
                model, **inputs(model), num_beams=2, max_new_tokens=3,
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
            torch.stack(done.logits).clamp(-9, 9).square().mean().backward()
        zero = {path: each.new_zeros(each.shape) for path, each in model.named_parameters()}
        return zero | {path: x.grad for path, x in model.named_parameters() if x.grad is not None}

    stock, ours = step(build(name)), step(adopt(build(name), form))
    for path, grad in stock.items():
        torch.testing.assert_close(ours[path], grad, atol=1e-4, rtol=1e-3)
    assert any(".k" in path and grad.abs().max() > 1e-3 for path, grad in ours.items())


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("settings", [{}, {"num_beams": 4, "num_return_sequences": 2}])
def test_whispers_own_cache_is_given_back_whole(settings: dict[str, int], form: str) -> None:
    model = build("Whisper")
    sound = torch.randn(2, 8, 22, generator=torch.Generator().manual_seed(3))

    def caches() -> list[Tensor]:
        done = model.generate(sound, max_new_tokens=4, return_dict_in_generate=True, **settings)
        both = (done.cache.self_attention_cache, done.cache.cross_attention_cache)
        return [x for each in both for layer in each.layers for x in (layer.keys, layer.values)]

    stock = caches()
    with adopted(model, form):
        ours = caches()
    assert len(stock) == len(ours) == 8
    for left, right in zip(stock, ours, strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("name", ["Whisper", "T5"])
def test_an_adopted_model_assists(name: str, form: str) -> None:
    model, helper = build(name), build(name)
    with torch.no_grad():
        helper.get_output_embeddings().weight.add_(torch.randn(97, 24) * 0.2)
    given, settings = inputs(model, batch=1), {"assistant_model": helper, "max_new_tokens": 9}
    stock = generate(model, given, settings)
    with adopted(helper, form):
        assert compare(model, given, settings, form) == []
        assert differences(stock, generate(model, given, settings)) == []


@pytest.mark.parametrize("name", ["Whisper", "BART", "T5", "TrOCR"])
def test_threads_generate_at_once(name: str) -> None:
    model = build(name)
    given = [inputs(model, batch=batch) for batch in (1, 2, 3)]

    def one(index: int) -> Tensor:
        return GenerationMixin.generate(
            model, **given[index], num_beams=index + 1, max_new_tokens=5, do_sample=False
        )

    stock, ours = [one(index) for index in range(3)], {}
    threads = [
        threading.Thread(target=lambda i=index: ours.update({i: one(i)})) for index in range(3)
    ]
    with adopted(model):
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert all(torch.equal(ours[index], stock[index]) for index in range(3))


@pytest.mark.parametrize("name", ["BART", "TrOCR"])
def test_weights_and_precision_that_change_after_adopt(name: str) -> None:
    model = adopt(build(name))
    given = inputs(model)
    generate(model, given, BEAMS)
    for each in model.parameters():
        each.data = each.data.flip(0)
    model.double()
    given = {key: x.double() if x.is_floating_point() else x for key, x in given.items()}
    ours = generate(model, given, BEAMS)
    assert differences(generate(release(model), given, BEAMS), ours, 1e-9) == []


def test_an_interrupted_generate_leaves_nothing_behind() -> None:
    model = build("T5")
    given = inputs(model)
    stock = generate(model, given, BEAMS)
    names, config = set(vars(model)), pickle.dumps(model.config)

    def stop(batch: int, tokens: Tensor) -> list[int]:
        if len(tokens) > 2:
            raise KeyboardInterrupt
        return [5, 6, 7]

    with pytest.raises(KeyboardInterrupt), adopted(model):
        generate(model, given, BEAMS | {"prefix_allowed_tokens_fn": stop})
    assert set(vars(model)) == names and pickle.dumps(model.config) == config
    assert differences(stock, generate(model, given, BEAMS), 0.0) == []


def test_a_part_of_an_adopted_model_is_read_by_a_fresh_process(tmp_path: Path) -> None:
    model = adopt(build("BART"))
    torch.save((model.get_encoder(), model.config), tmp_path / "part.pt")
    program = (
        "import sys, torch; sys.path.insert(0, sys.argv[2]); "
        "encoder, config = torch.load(sys.argv[1], weights_only=False); "
        "print(*encoder(torch.tensor([[5, 6]])).last_hidden_state.shape, config.model_type)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "part.pt"), str(SOURCE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "2", "24", "bart"]


@pytest.mark.slow
def test_a_generate_that_is_compiled_whole_repeats_its_sources() -> None:
    model = build("T5")
    given, settings = inputs(model), BEAMS | {"max_new_tokens": 2}
    stock = generate(model, given, settings)
    with adopted(model):
        compiled = torch.compile(lambda: generate(model, given, settings), backend="eager")
        assert differences(stock, compiled()) == []
