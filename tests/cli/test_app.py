from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from crossattention.cli import app


def test_help_names_the_commands(run: Callable) -> None:
    shown = run("--help")
    assert shown.code == 0
    assert all(name in shown.out for name in ("translate", "evaluate", "train", "explain", "tune"))


@pytest.mark.parametrize("name", ["translate", "evaluate", "train", "explain", "tune"])
def test_every_option_has_words(run: Callable, name: str) -> None:
    shown = run(name, "--help")
    assert shown.code == 0 and "--" in shown.out
    options = [line for line in shown.out.split("\n") if line.startswith("  --")]
    assert options and all(len(line.split("  ")) > 2 for line in options)


@pytest.mark.parametrize("arguments", [("trnslate",), ("translate", "--beems", 3), ("explain",)])
def test_wrong_usage_exits_with_2(run: Callable, arguments: tuple[object, ...]) -> None:
    shown = run(*arguments)
    assert shown.code == 2 and shown.out == "" and "Error" in shown.said


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['crossattention', '--help']\nfrom crossattention.cli import main"
    )
    code += "\ntry: main()\nexcept SystemExit: pass\nprint(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    for name in ("lightning", "sacrebleu", "tokenizers", "crossattention.translate.translator"):
        assert f"'{name}'" not in loaded.stdout
    assert "'crossattention.cli.app'" in loaded.stdout


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (ModuleNotFoundError("no", name="lightning.pytorch"), 2, "crossattention[train]"),
        (ModuleNotFoundError("no", name="tokenizers"), 2, "crossattention[translate]"),
    ],
)
def test_what_goes_wrong_has_a_code_and_no_traceback(
    run: Callable, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(app.app.registered_commands[3], "callback", fail)
    shown = run("explain")
    assert shown.code == code and said in shown.said and "Traceback" not in shown.err


def test_a_fault_of_our_own_is_not_hidden(run: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("no", name="crossattention.nowhere")

    monkeypatch.setattr(app.app.registered_commands[3], "callback", fail)
    with pytest.raises(ModuleNotFoundError):
        run("explain")
