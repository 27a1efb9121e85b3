"""Adopted models beside the libraries people use them with: saving, PEFT, accelerate, trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from torch.utils.data import Dataset
from transformers import PreTrainedModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

from benchmarks.same_generation import compare, differences, generate
from benchmarks.tiny_models import build, inputs
from crossattention.adapters import adopt, adopted, release
from crossattention.errors import ContractError

BEAMS = {"num_beams": 3}


@pytest.mark.parametrize("name", ["BART", "T5", "Whisper", "TrOCR"])
def test_saved_files_are_those_of_a_model_never_adopted(name: str, tmp_path: Path) -> None:
    model = build(name)
    keys = list(model.state_dict())
    model.save_pretrained(tmp_path / "stock")
    adopt(model)
    assert list(model.state_dict()) == keys
    model.save_pretrained(tmp_path / "ours")
    files = sorted(path.name for path in (tmp_path / "stock").iterdir())
    assert "config.json" in files and "model.safetensors" in files
    assert files == sorted(path.name for path in (tmp_path / "ours").iterdir())
    for file in files:
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "stock" / file).read_bytes()
    loaded = type(model).from_pretrained(tmp_path / "ours").eval()
    given = inputs(model)
    ours = generate(model, given, BEAMS)
    assert differences(ours, generate(loaded, given, BEAMS)) == []
    loaded.load_state_dict(build(name).state_dict(), assign=True)
    assert compare(loaded, given, BEAMS) == []


def lora(model: PreTrainedModel) -> peft.PeftModel:
    """Put low-rank adapters on a model's projections, with weights that change what it writes."""
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj", "v_proj"])
    tuned = peft.get_peft_model(model, config).eval()
    draw = torch.Generator().manual_seed(2)
    for name, each in tuned.named_parameters():
        if "lora_" in name:
            each.data.copy_(torch.randn(each.shape, generator=draw))
    return tuned


@pytest.mark.parametrize("when", ["before", "after", "inside"])
def test_low_rank_adapters_on_the_projections(when: str) -> None:
    stock = generate(lora(build("BART")), inputs(build("BART")), BEAMS)
    plain = generate(build("BART"), inputs(build("BART")), BEAMS)
    assert differences(stock, plain) != []
    if when == "before":
        model = lora(adopt(build("BART")))
    elif when == "after":
        model = adopt(lora(build("BART")))
    else:
        model = lora(build("BART"))
        adopt(model.get_base_model())
    given = inputs(model)
    assert differences(stock, generate(model, given, BEAMS)) == []
    with model.disable_adapter():
        assert differences(plain, generate(model, given, BEAMS)) == []
    merged = model.merge_and_unload()
    assert differences(stock, generate(merged, given, BEAMS), 1e-3) == []
    release(model if when == "after" else merged)
    assert differences(stock, generate(merged, given, BEAMS), 1e-3) == []


def test_the_raw_form_is_refused_beside_low_rank_adapters() -> None:
    with pytest.raises(ContractError, match="projection is a Linear, not nn.Linear"):
        adopt(lora(build("BART")), "raw")


@pytest.mark.parametrize("first", ["adopt", "offload"])
def test_weights_that_are_fetched_layer_by_layer(first: str) -> None:
    model = build("BART")
    given = inputs(model)
    stock = generate(model, given, BEAMS)
    if first == "adopt":
        adopt(model)
    cpu_offload(model, torch.device("cpu"))
    assert model.model.decoder.layers[0].encoder_attn.k_proj.weight.is_meta
    if first == "offload":
        adopt(model)
    assert differences(stock, generate(model, given, BEAMS)) == []
    assert differences(stock, generate(release(model), given, BEAMS)) == []


@pytest.mark.parametrize("name", ["BART", "TrOCR"])
@pytest.mark.parametrize("first", ["adopt", "dispatch"])
def test_a_device_map(name: str, first: str) -> None:
    model = build(name)
    given = inputs(model)
    stock = generate(model, given, BEAMS)
    if first == "adopt":
        adopt(model)
    dispatch_model(model, {"": "cpu"}, force_hooks=True)
    if first == "dispatch":
        adopt(model)
    assert differences(stock, generate(model, given, BEAMS)) == []
    assert differences(stock, generate(release(model), given, BEAMS)) == []


class Pairs(Dataset[dict[str, Any]]):
    """Four sources with four targets."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.sources = inputs(model, batch=4)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        one = {name: each[index] for name, each in self.sources.items()}
        return one | {"labels": torch.arange(5) + 4 + index}


def test_a_trainer_trains_and_predicts_the_same(tmp_path: Path) -> None:
    def run(model: PreTrainedModel) -> tuple[Any, Any]:
        arguments = Seq2SeqTrainingArguments(
            output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, seed=3,
            predict_with_generate=True, generation_num_beams=3, generation_max_length=6,
            report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        trainer = Seq2SeqTrainer(model, arguments, train_dataset=Pairs(model))
        loss = trainer.train().training_loss
        return loss, trainer.predict(Pairs(model)).predictions

    with torch.random.fork_rng():
        loss, written = run(build("T5"))
        with adopted(build("T5")) as model:
            our_loss, ours = run(model)
    assert loss == our_loss
    assert (written == ours).all()
