from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crossattention.attention import tune as module
from crossattention.kernels.costs import DTYPES, SHIPPED, Table


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give the shipped table at once, and note how long was asked for."""
    asked: list[float] = []

    def tune(seconds: float, *, progress: Callable[[int, int], None]) -> Table:
        asked.append(seconds)
        progress(1, 3)
        return SHIPPED

    monkeypatch.setattr(module, "tune", tune)
    return asked


def test_it_writes_a_table_that_is_read(run: Callable, tmp_path: Path) -> None:
    few = module.SAMPLES[::12]
    whole = module.tune
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module, "tune", lambda seconds, progress: whole(seconds, few, progress=progress)
        )
        shown = run("tune", "--out", tmp_path / "mine.json", "--quick")
    assert shown.code == 0 and "mine.json" in shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["mine.json"]
    table = Table.read(tmp_path / "mine.json")
    assert set(table.rates) == set(DTYPES) and "matmul" in table.rates[DTYPES[1]]


def test_quick_is_short_and_threads_are_set(
    run: Callable, tmp_path: Path, measured: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    threads: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    assert run("tune", "--out", tmp_path / "a.json", "--quick", "--threads", 3).code == 0
    assert run("tune", "--out", tmp_path / "b.json").code == 0
    assert threads == [3] and measured[0] < measured[1] / 10


def test_an_interrupt_leaves_nothing(
    run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(seconds: float, *, progress: Callable[[int, int], None]) -> Table:
        progress(1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "tune", stop)
    shown = run("tune", "--out", tmp_path / "mine.json")
    assert shown.code == 130 and "nothing was written" in shown.said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "{}"), "--out"),
        (("--out", "{}/absent/mine.json"), "--out"),
        (("--out", "{}/mine.json", "--threads", 0), "--threads"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(
    run: Callable, tmp_path: Path, measured: list[float], arguments: tuple[object, ...], said: str
) -> None:
    shown = run("tune", *(str(each).format(tmp_path) for each in arguments))
    assert shown.code == 2 and f"`{said}` must be" in shown.said and shown.out == ""
    assert measured == [] and list(tmp_path.iterdir()) == []
