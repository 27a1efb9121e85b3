"""A Perceiver: the laws, the order of its blocks, and an input that is never projected."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import summaries
from crossattention import ContractError
from crossattention.nn import Perceiver

WIDTH = 5  # of the rows
TOOL = Path(__file__).parents[2] / "tools" / "perceiver_memory.py"


def make(shared: bool, reads: int = 3) -> Perceiver:
    torch.manual_seed(0)
    perceiver = Perceiver(
        12, (3, 2), memory_width=WIDTH, queries=2, reads=reads, latent_layers=2, shared=shared,
        feed_forward=7,
    )  # fmt: skip
    summaries.disturb(perceiver)
    return perceiver


@pytest.mark.parametrize("law", summaries.LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("shared", [False, True])
def test_law(law: Callable[[Any, int], None], shared: bool) -> None:
    law(make(shared), WIDTH)


@pytest.mark.parametrize("form", ["raw", "projected"])
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_reach_everything(shared: bool, form: str) -> None:
    perceiver = make(shared)
    perceiver.form = form
    summaries.check_gradients(perceiver, WIDTH)


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_blocks_come_in_order(shared: bool, repeats: int) -> None:
    perceiver, rows = make(shared), summaries.rows_of(WIDTH)
    perceiver.repeats = repeats
    memory = perceiver.memory_norm(rows)
    reading = [0, 1, 1] if shared else [0, 1, 2]
    latent = [0, 0, 0] if shared else [0, 1, 2]
    assert (len(perceiver.reading), len(perceiver.latent)) == ((2, 1) if shared else (3, 3))
    stream = perceiver.queries(len(rows))
    for read, stack in zip(reading, latent, strict=True):
        stream = perceiver.reading[read](stream, memory)
        for _ in range(repeats):
            for block in perceiver.latent[stack]:
                stream = block(stream)
    torch.testing.assert_close(perceiver(rows), stream)


class Largest(TorchDispatchMode):
    """Remember how many numbers the largest tensor has that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves(made):
            if isinstance(each, Tensor) and not func.is_view:
                self.numbers = max(self.numbers, each.numel())
        return made


@pytest.mark.parametrize(("form", "wide"), [("raw", False), ("projected", True)])
def test_the_input_is_never_projected(form: str, wide: bool) -> None:
    """No step, forward or backward, makes more than the input has: keys and values would."""
    torch.manual_seed(0)
    perceiver = Perceiver(64, 1, memory_width=16, queries=3, reads=2, latent_layers=1)
    perceiver.form = form
    rows = torch.randn(1, 2003, 16, requires_grad=True)
    with Largest() as largest:
        perceiver(rows).sum().backward()
    assert (largest.numbers > rows.numel()) is wide
    assert largest.numbers >= rows.numel()


def test_the_automatic_form_follows_how_often_a_block_reads() -> None:
    """Raw while about ten reads or fewer come with these sizes: the second block reads 15 times."""
    perceiver = make(True, reads=16).float()
    perceiver.form = "auto"
    memory = perceiver.remember(summaries.rows_of(WIDTH).float().repeat(1, 4000, 1))
    first, second = (memory.contents[x.cross_attention.number] for x in perceiver.reading)
    assert first.key is None and second.key is not None


def test_the_input_is_kept_once() -> None:
    rows = summaries.rows_of(WIDTH)
    assert make(False).remember(rows).nbytes == rows.nbytes


@pytest.mark.parametrize("count", [1, 2, 101])
def test_any_number_of_rows(count: int) -> None:
    assert make(True)(torch.randn(2, count, WIDTH).double()).shape == (2, 2, 12)


def test_no_latent_blocks_leave_readings_alone() -> None:
    perceiver = Perceiver(8, 2, memory_width=WIDTH, queries=3, latent_layers=0).double()
    rows = summaries.rows_of(WIDTH)
    wanted = perceiver.reading[0](perceiver.queries(3), perceiver.memory_norm(rows))
    torch.testing.assert_close(perceiver(rows), wanted)


def test_memory_is_measured_beside_a_perceiver_that_projects_per_layer() -> None:
    """The tool in small: every step is measured in a process of its own."""
    sizes = ["--rows=20000", "--reads=3", "--width=64", "--heads=2", "--queries=4"]
    command = [sys.executable, str(TOOL), "--json", *sizes]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert figures["settings"]["rows"] == 20000
    assert 0 < figures["raw"]["above"] < figures["per layer"]["above"]
    assert figures["raw"]["above"] < figures["limit"] == 2 * 2**30


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"queries": 0}, "queries"),
        ({"reads": 0}, "reads"),
        ({"latent_layers": -1}, "latent_layers"),
        ({"memory_width": 0}, "memory_width"),
        ({"shared": None}, "shared"),
        ({"heads": (2, 2, 2)}, "heads"),
        ({"heads": 5}, "width"),
    ],
)
def test_refuses(wrong: dict[str, Any], name: str) -> None:
    sizes: dict[str, Any] = {"heads": 2, "memory_width": WIDTH, "queries": 2, **wrong}
    with pytest.raises(ContractError, match=name):
        Perceiver(12, **sizes)
