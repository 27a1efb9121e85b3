"""The dispatch: what is known, what is refused, and what is put back."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import crossattention
from benchmarks.same_generation import compare, differences, generate
from benchmarks.tiny_models import build, inputs
from crossattention.adapters import adopt, adopted, explain_model, release
from crossattention.adapters.adopt import RECORD, is_adopted
from crossattention.adapters.contract import Bill
from crossattention.errors import ContractError

SOURCE = Path(crossattention.__file__).parents[1]


def test_an_unknown_model_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ContractError, match="Whisper, BART, mBART, Marian"):
        adopt(nn.Linear(2, 2))
    with pytest.raises(ContractError, match="`model` must be one of these"):
        adopt(build("BART").model)  # it does not generate
    with pytest.raises(ContractError, match="`model` must be one of these"):
        adopt("bart")  # type: ignore[type-var]


def test_a_form_that_is_unknown_is_refused() -> None:
    with pytest.raises(ContractError, match="`form` must be one of 'auto', 'projected', 'raw'"):
        adopt(build("BART"), "int8")


def test_twice_is_refused_both_ways() -> None:
    model = adopt(build("BART"))
    with pytest.raises(ContractError, match="an adopted one; release it first"):
        adopt(model)
    release(model)
    with pytest.raises(ContractError, match="`model` must be adopted"):
        release(model)


def test_release_puts_back_what_was_there_even_after_an_error() -> None:
    model = build("BART")
    kinds = {name: type(each) for name, each in model.named_modules()}
    names, config = set(vars(model)), copy.deepcopy(vars(model.config))
    with pytest.raises(KeyError), adopted(model):
        assert {name: type(each) for name, each in model.named_modules()} == kinds
        raise KeyError
    assert set(vars(model)) == names
    assert vars(model.config) == config
    assert not is_adopted(model)


def test_a_model_may_be_released_before_its_block_ends() -> None:
    with adopted(build("BART")) as model:
        release(model)
    assert not is_adopted(model)


@pytest.mark.parametrize("name", ["BART", "TrOCR", "Moonshine, padded heads"])
@pytest.mark.parametrize("through", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_adopted_too_and_stands_alone(name: str, through: object) -> None:
    model = adopt(build(name))
    twin = through(model)  # type: ignore[operator]
    given, beams = inputs(model), {"num_beams": 3}
    ours = generate(model, given, beams)
    release(model)
    stock = generate(model, given, beams)
    assert differences(ours, generate(twin, given, beams), 0.0) == []
    assert differences(stock, generate(release(twin), given, beams), 0.0) == []
    del model
    assert compare(twin, given, beams) == []


def test_a_pickled_model_is_read_by_a_fresh_process(tmp_path: object) -> None:
    path = f"{tmp_path}/model.pt"
    torch.save(adopt(build("T5")), path)
    program = (
        "import sys, torch; sys.path.insert(0, sys.argv[2]); "
        "model = torch.load(sys.argv[1], weights_only=False); "
        "print(model.generate(torch.tensor([[5, 6]]), num_beams=2, max_new_tokens=3).shape[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path, str(SOURCE)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1"]


def test_an_adopted_model_is_freed_when_nobody_holds_it() -> None:
    import weakref

    model = adopt(build("BART"))
    gone = weakref.ref(vars(model)["_prepare_cache_for_generation"].__self__)
    del model
    assert gone() is None


@pytest.mark.parametrize(
    ("name", "damage"), [("BART", "k_proj"), ("T5", "k"), ("TrOCR", "head_dim")]
)
def test_a_class_that_has_changed_raises_at_adopt(name: str, damage: str) -> None:
    model = build(name)
    place = "EncDecAttention" if name == "T5" else "encoder_attn"
    module = next(each for path, each in model.named_modules() if path.endswith(place))
    delattr(module, damage)
    with pytest.raises(ContractError, match=f"without.* {damage}.*not yet known"):
        adopt(model)
    assert RECORD not in vars(model)


def test_a_changed_signature_raises_at_adopt(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build("BART")
    name = "_prepare_cache_for_generation"
    monkeypatch.setattr(type(model), name, lambda self, settings: None)
    with pytest.raises(ContractError, match=f"one whose {name} takes"):
        adopt(model)


def test_another_implementation_is_refused() -> None:
    model = build("BART")
    model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(ContractError, match="`attn_implementation` must be one of sdpa, eager"):
        adopt(model)


def test_raw_is_refused_in_words_where_a_projection_is_not_plain() -> None:
    model = build("BART")
    model.model.decoder.layers[1].encoder_attn.k_proj.register_forward_hook(lambda *_: None)
    with pytest.raises(ContractError, match="the key projection has hooks or parametrisations"):
        adopt(model, "raw")
    assert compare(model, inputs(model), {"num_beams": 2}) == []


def test_the_bills_are_those_of_the_caches() -> None:
    model = build("BART")
    found = explain_model(model, batch=3, beams=4, tokens=5, rows=7)
    width, layers = 24, 2
    stock, projected, raw = found.bills
    assert stock.bytes == 4 * projected.bytes == 4 * (2 * layers * 3 * 7 * width * 4)
    assert raw == Bill("raw", raw.multiply_adds, raw.work, 3 * 7 * width * 4)
    assert stock.multiply_adds > projected.multiply_adds
    assert re.search(r"projected .*<- chosen", str(found))
    assert explain_model(model, tokens=1, rows=9001).chosen == "raw"
