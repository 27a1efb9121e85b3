"""Everything a run needs to go on as if it had never stopped, in one file written in one step.

Tensors lie in safetensors under `model.`, `average.` and `optimizer.`; where the run stands is JSON
in its header. The learning rate is a function of the step and needs no record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from crossattention.errors import ContractError


@dataclass
class Position:
    """Where a run stands: the next step, epoch and batch, and what judging has found."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    best: float = -1.0
    stale: int = 0
    seconds: float = 0.0


def save_checkpoint(
    path: Path,
    model: nn.Module,
    average: Sequence[Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
    position: Position,
) -> None:
    """Write model, moving average, optimiser states, random state and position."""
    from safetensors.torch import save_file

    names = {id(p): name for name, p in model.named_parameters()}
    tensors: dict[str, Tensor] = {"random": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors["random.cuda"] = torch.cuda.get_rng_state()
    for (name, p), mean in zip(model.named_parameters(), average, strict=True):
        tensors[f"model.{name}"] = p.detach().contiguous()
        tensors[f"average.{name}"] = mean.contiguous()
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                tensors[f"optimizer.{names[id(parameter)]}/{key}"] = value.contiguous()
    temporary = path.with_name(path.name + ".tmp")
    save_file(tensors, temporary, metadata={"position": json.dumps(asdict(position))})
    os.replace(temporary, path)


def load_checkpoint(
    path: Path,
    model: nn.Module,
    average: Sequence[Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
) -> Position:
    """Put back what `save_checkpoint` wrote, in place, and return the position.

    Raises:
        ContractError: the file is no checkpoint of this model.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            position = Position(**json.loads(file.metadata()["position"]))
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        with torch.no_grad():
            for (name, parameter), mean in zip(model.named_parameters(), average, strict=True):
                parameter.copy_(tensors[f"model.{name}"])
                mean.copy_(tensors[f"average.{name}"])
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise ContractError(
            f"`path` must be a checkpoint of this run, got {os.fspath(path)!r} ({error}); "
            "resume with the options the run began with."
        ) from error
    _restore_optimizers(model, optimizers, tensors)
    torch.set_rng_state(tensors["random"])
    if "random.cuda" in tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(tensors["random.cuda"])
    return position


def _restore_optimizers(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], tensors: dict[str, Tensor]
) -> None:
    states: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            name, field = key.removeprefix("optimizer.").rsplit("/", 1)
            states.setdefault(name, {})[field] = value
    names = {id(p): name for name, p in model.named_parameters()}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = states.get(names[id(parameter)], {})
                optimizer.state[parameter] = {
                    field: value.clone() if value.ndim == 0 else value.to(parameter.device)
                    for field, value in state.items()
                }
