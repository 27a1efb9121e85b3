"""A model saved is the model loaded; a broken file is an error in words."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from crossattention import ContractError
from crossattention.seq2seq import EncoderDecoder
from crossattention.seq2seq.save import CONFIG, WEIGHTS
from seq2seq.models import sources, tiny


def logits(model: EncoderDecoder) -> torch.Tensor:
    source, lengths = sources([4, 2])
    with torch.no_grad():
        return model(source, torch.tensor(lengths), torch.tensor([[1, 4, 5], [1, 3, 3]]))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_loaded_is_what_was_saved(
    tmp_path: Path, positions: str, dtype: torch.dtype
) -> None:
    model = tiny(1, positions=positions, norm="post").to(dtype)
    model.save(tmp_path / "new" / "folder")
    loaded = EncoderDecoder.load(tmp_path / "new" / "folder")
    assert loaded.config == model.config and not loaded.training
    assert torch.equal(logits(loaded), logits(model))
    assert logits(loaded).dtype == dtype


def test_half_the_bytes_load_as_float32(tmp_path: Path) -> None:
    model = tiny(1).float()
    model.save(tmp_path, dtype=torch.float16)
    stored = load_file(tmp_path / WEIGHTS)
    assert {each.dtype for each in stored.values()} == {torch.float16}
    loaded = EncoderDecoder.load(tmp_path)
    assert {each.dtype for each in loaded.parameters()} == {torch.float32}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    assert torch.equal(logits(loaded), logits(model))


def test_the_alignment_head_is_kept(tmp_path: Path) -> None:
    model = tiny()
    model.config = dataclasses.replace(model.config, alignment=(1, 2))
    model.save(tmp_path)
    assert EncoderDecoder.load(tmp_path).alignment_heads == ((1, 2),)


def test_a_folder_holds_two_files_and_no_pickle(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    tiny().save(tmp_path)  # over what is there
    assert sorted(each.name for each in tmp_path.iterdir()) == [CONFIG, WEIGHTS]
    size = int.from_bytes((tmp_path / WEIGHTS).read_bytes()[:8], "little")
    header = json.loads((tmp_path / WEIGHTS).read_bytes()[8 : 8 + size])
    assert "embedding.tokens.weight" in header


def test_loading_draws_nothing_from_chance(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    before = torch.get_rng_state()
    EncoderDecoder.load(tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_a_model_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    model = tiny()
    model.save(tmp_path)
    old = logits(model)
    with torch.no_grad():
        model.encoder_norm.weight[0] = 1e6  # beyond float16
    with pytest.raises(ContractError, match="encoder_norm.weight"):
        model.save(tmp_path, dtype=torch.float16)
    assert torch.equal(logits(EncoderDecoder.load(tmp_path)), old)
    with pytest.raises(ContractError, match="dtype"):
        model.save(tmp_path, dtype=torch.int8)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_file_cut_short_is_named(tmp_path: Path, name: str, kept: float) -> None:
    tiny().save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: int(kept * len(whole) - 1)] if kept else b"")
    with pytest.raises(ContractError, match=name):
        EncoderDecoder.load(tmp_path)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    tiny().save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ContractError, match=name):
        EncoderDecoder.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "colour"), ({"heads": "three"}, "heads"), ({"width": 24}, "weights"),
        ({"decoder_layers": 3}, "weights"), ({"norm": "post"}, "weights"),
    ],
)  # fmt: skip
def test_a_config_of_another_model_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    tiny().save(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps({**config, **change}))
    with pytest.raises(ContractError, match=words):
        EncoderDecoder.load(tmp_path)


def test_a_config_without_its_vocabulary_is_refused(tmp_path: Path) -> None:
    tiny().save(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    del config["vocabulary"]
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ContractError, match="vocabulary"):
        EncoderDecoder.load(tmp_path)


def test_safetensors_is_loaded_only_when_used() -> None:
    code = "import sys, crossattention.seq2seq; sys.exit('safetensors' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
