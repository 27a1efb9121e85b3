"""Models on disk: a config in JSON beside weights in safetensors, never pickle.

Half-precision files load as float32, the dtype that search on a CPU is fast and accurate in. Files
are complete or absent: each is written beside its place and then moved there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from crossattention.argument import FLOATS
from crossattention.errors import ContractError, complaint, describe
from crossattention.seq2seq.config import Config

CONFIG, WEIGHTS = "config.json", "model.safetensors"
StrPath = str | os.PathLike[str]


def write_model(
    folder: StrPath, config: Config, tensors: Mapping[str, Tensor], dtype: torch.dtype | None = None
) -> None:
    """Write a config and weights into a folder, which is made if need be.

    Args:
        folder: where `config.json` and `model.safetensors` go.
        config: the model's shape.
        tensors: its state dict.
        dtype: a floating dtype to store weights in; None: as they are.
    Raises:
        ContractError: a dtype that is not floating, or too narrow for a weight.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_model(folder, Config(vocabulary=7), {"weight": torch.ones(2)})
    ...     read_model(folder)[1]["weight"].tolist()
    [1.0, 1.0]
    """
    from safetensors.torch import save

    if dtype is not None and dtype not in FLOATS:
        do = "pass torch.float16, say"
        raise ContractError(complaint("dtype", f"one of {FLOATS}", str(dtype), do))
    stored = {name: _stored(name, tensor, dtype) for name, tensor in tensors.items()}
    place = _place(folder)
    place.mkdir(parents=True, exist_ok=True)
    contents = {CONFIG: config.to_json().encode() + b"\n", WEIGHTS: save(stored)}
    temporary = {name: place / f".{name}.{os.getpid()}" for name in contents}
    try:
        for name, content in contents.items():
            temporary[name].write_bytes(content)
        for name, path in temporary.items():
            os.replace(path, place / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)


def read_model(folder: StrPath) -> tuple[Config, dict[str, Tensor]]:
    """Read a config and weights; half precision becomes float32.

    Args:
        folder: as `write_model` was given it.
    Raises:
        ContractError: a file that is missing, cut short or not what it should be.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    place = _place(folder)
    raw = {name: _bytes(place / name) for name in (CONFIG, WEIGHTS)}
    do = "copy or train the model again"
    try:
        config = Config.from_json(raw[CONFIG].decode())
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, RecursionError) as error:
        given = f"a broken one in {folder} ({error})"
        raise ContractError(complaint(CONFIG, "a model's config", given, do)) from error
    try:
        tensors = load(raw[WEIGHTS])
    except SafetensorError as error:
        given = f"a broken one in {folder} ({error})"
        raise ContractError(complaint(WEIGHTS, "a whole file", given, do)) from error
    return config, {name: _widened(tensor) for name, tensor in tensors.items()}


def fill(model: nn.Module, tensors: Mapping[str, Tensor], *, assign: bool = False) -> None:
    """Give a model its weights, and their dtype; `assign` puts them in place of its own.

    Raises:
        ContractError: names or shapes that are not the model's.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> fill(layer, {"weight": torch.tensor([[3.0]], dtype=torch.float64)})
    >>> layer.weight.item(), layer.weight.dtype
    (3.0, torch.float64)
    """
    for tensor in tensors.values():
        model.to(tensor.dtype)
        break
    try:
        model.load_state_dict(dict(tensors), assign=assign)
    except RuntimeError as error:
        do = "config.json and model.safetensors must come from one model"
        want = "those of the config's model"
        raise ContractError(complaint("weights", want, f"others ({error})", do)) from error


def _stored(name: str, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    kept = tensor.detach().to("cpu", dtype if tensor.is_floating_point() else None)
    if not bool(kept.isfinite().all()):
        do = "store it in a wider dtype, or find out where it broke"
        given = f"{name} with infinite or NaN values"
        raise ContractError(complaint("weights", f"finite in {kept.dtype}", given, do))
    return kept.contiguous()


def _widened(tensor: Tensor) -> Tensor:
    half = tensor.is_floating_point() and tensor.itemsize < 4
    return tensor.float() if half else tensor


def _place(folder: StrPath) -> Path:
    if not isinstance(folder, str | os.PathLike):
        raise ContractError(complaint("folder", "a path", describe(folder), "name a folder"))
    return Path(folder)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        do = f"a model's folder holds {CONFIG} and {WEIGHTS}"
        given = f"{path} ({error.strerror})"
        raise ContractError(complaint("folder", "a saved model", given, do)) from error
