import pytest

from crossattention.translate.judge import bleu_of


def test_any_reference_counts() -> None:
    long = "le chat noir dort sur la table ."
    assert bleu_of([long, long], [["un chien", long], [long]]) == pytest.approx(100.0)
    assert bleu_of([long], [["un chien court vite dehors ."]]) < 20
