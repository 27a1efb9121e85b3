from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossattention.kernels.native.library import absent, best
from crossattention.translate.translator import Translator
from tiny import tiny_translator

LINES = ["The black cat", "", "a red car"]


@pytest.fixture(scope="module")
def expected() -> list[str]:
    found = tiny_translator().translate(LINES, beams=2)
    return [" ".join(each.text.splitlines()) for each in found]  # random bytes may break lines


def test_arguments_are_lines(run: Callable, model: Path, expected: list[str]) -> None:
    shown = run("translate", "--model", model, "--beams", 2, *LINES)
    assert (shown.code, shown.err) == (0, "") and shown.out.split("\n") == [*expected, ""]
    joined = run("translate", "--model", model, "--beams", 2, "\n".join(LINES))
    assert joined.out == shown.out


def test_standard_input_is_lines(run: Callable, model: Path, expected: list[str]) -> None:
    given = "\r\n".join(LINES).encode()
    shown = run("translate", "--model", model, "--beams", 2, stdin=given)
    assert shown.code == 0 and shown.out.split("\n") == [*expected, ""]


def test_a_file_is_lines(run: Callable, model: Path, expected: list[str], tmp_path: Path) -> None:
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    shown = run("translate", "--model", model, "--beams", 2, "--input", source)
    assert shown.out.split("\n") == [*expected, ""]
    quiet = run("translate", "--model", model, "--beams", 2, "--input", source, "--output", output)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert output.read_text(encoding="utf-8") == shown.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_json_is_one_object_a_line(run: Callable, model: Path) -> None:
    shown = run("translate", "--model", model, "--json", "--nbest", 2, *LINES)
    bodies = [json.loads(line) for line in shown.out.splitlines()]
    assert [body["text"] for body in bodies] == LINES
    assert [len(body.get("others", ())) for body in bodies] == [1, 0, 1]
    for body in bodies:
        assert len(body["tokens"]) == len(body["scores"])
        assert len(body["words"]) == len(body["alignment"])
        for row in body["alignment"]:
            assert len(row) == len(body["source_words"]) + 1 and abs(sum(row) - 1) < 0.01


@pytest.mark.skipif(absent() != "" or best() == "portable", reason="halved for the native kernel")
def test_weights_in_the_precision_they_were_stored_in_change_nothing(run: Callable) -> None:
    """The bundled model lies in float16; a test of `halve` says what other rounding does."""
    shown = run("translate", *LINES)
    assert run("translate", "--weights", "float16", *LINES) == shown
    rounded = run("translate", "--weights", "bfloat16", "--json", LINES[0])
    assert rounded.code == 0 and rounded.out != run("translate", "--json", LINES[0]).out


def test_the_picture_names_the_words(run: Callable, model: Path) -> None:
    shown = run("translate", "--model", model, "--show", "The black cat")
    assert shown.code == 0 and "reads most" in shown.out and "black" in shown.out


def test_an_interrupted_file_goes_on(
    run: Callable, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossattention.cli.job.CHUNK", 2)
    source, output = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("The cat\na red car\n\nblack\nThe\n", encoding="utf-8")
    options = ("translate", "--model", model, "--beams", 1, "--input", source, "--output", output)
    assert run(*options).code == 0
    whole = output.read_bytes()
    output.unlink()
    kept, calls = Translator.translate, []

    def interrupted(self: Translator, lines: list[str], **options: int) -> list[object]:
        calls.append(list(lines))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return list(kept(self, lines, **options))

    monkeypatch.setattr(Translator, "translate", interrupted)
    stopped = run(*options)
    assert stopped.code == 130 and "2 of 5 lines" in stopped.said and "--resume" in stopped.said
    assert not output.exists()
    partial = tmp_path / "out.txt.partial"
    partial.write_bytes(partial.read_bytes() + b"demi-lig")  # as a kill would leave it
    refused = run(*options)
    assert refused.code == 2 and "--resume" in refused.said
    other = run(*options, "--resume", "--nbest", 1, "--json")
    assert other.code == 2 and "another style" in other.said
    calls[:] = [[], []]
    assert run(*options, "--resume").code == 0
    assert calls[2:] == [["", "black"], ["The"]]
    assert output.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a", "--beams", 0), "`beams` must be"),
        (("a", "--nbest", 5), "`nbest` must be"),
        (("a", "--model", "nowhere"), "'nowhere' without config.json"),
        (("a", "--input", "IN"), "`--input` must be without TEXT"),
        (("--input", "nowhere.txt"), "No such file"),
        (("--input", "BAD"), "of line 2"),
        (("a", "--output", "out.txt"), "`--output` must be with --input"),
        (("--input", "IN", "--output", "none/out.txt"), "`--output` must be a file in"),
        (("--input", "IN", "--output", "."), "`--output` must be a file in"),
        (("--input", "IN", "--output", "IN"), "another file than --input"),
        (("a", "--show", "--json"), "`--show` must be without --json"),
        (("a", "--resume"), "`--resume` must be with --output"),
        (("a\udcff",), "`text` must be valid Unicode"),
        (("a", "--weights", "int8"), '`weights` must be "float32" or "bfloat16" or "float16"'),
        (("a", "--weights", "bfloat16"), "can hold weights in half precision"),
    ],
)
def test_bad_input_is_one_paragraph(
    run: Callable, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...], said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("IN").write_text("one\n")
    Path("BAD").write_bytes(b"one\n\xff\n")
    if "--model" not in arguments:
        arguments = (*arguments, "--model", model)
    shown = run("translate", *arguments)
    assert shown.code == 2 and shown.out == ""
    paragraph = " ".join(shown.err.split())
    assert said in paragraph and "Traceback" not in shown.err and "\n\n" not in shown.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["BAD", "IN"]


def test_a_bad_line_of_standard_input_is_named(run: Callable, model: Path) -> None:
    shown = run("translate", "--model", model, stdin=b"\n\xff\n")
    assert shown.code == 2 and "line 2" in shown.said


def test_show_goes_with_a_terminal_not_a_file(run: Callable, model: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.txt"
    source.write_text("a\n")
    shown = run(
        "translate", "--model", model, "--show", "--input", source, "--output", tmp_path / "out"
    )
    assert shown.code == 2 and "`--show` must be without --output" in shown.said
