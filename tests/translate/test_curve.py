from pathlib import Path

from crossattention.translate.curve import extend_curve, trim_curve


def test_later_and_broken_lines_go(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    trim_curve(path, 3)
    assert not path.exists()
    for step in (1, 2, 3, 4):
        extend_curve(path, {"step": step, "loss": 0.5})
    with path.open("a") as file:
        file.write('{"step": 2, "lo')
    trim_curve(path, 3)
    assert path.read_text().count("\n") == 3 and '"step": 4' not in path.read_text()
