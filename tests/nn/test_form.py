from __future__ import annotations

import pytest
import torch

from crossattention.errors import ContractError
from crossattention.nn.form import CALL, MOVED, Life, Work, check_form, choose_form, form_costs
from crossattention.nn.sizes import Sizes

SIZES = Sizes.of(24, 6, (10, 14), (5, 7), 3)  # g·(c_k·d + c_v·e) = 3 · 148


def test_work_is_what_the_equations_say() -> None:
    costs = form_costs(Life(memories=2, rows=11, queries=13, reads=4), SIZES)
    assert costs["projected"] == Work(2 * 11 * 3 * 148 + 2 * 13 * 11 * 6 * (5 + 7), 3 * 148, 2)
    folded = 2 * 13 * 6 * (10 + 14)
    counts = (2 * 13 * 6 * 148 + 11 * folded, 4 * 3 * 148 + folded, 4 * 4)
    assert costs["raw"] == Work(*counts, wide=11 * folded)
    adds, numbers, calls = counts
    assert costs["raw"].total == adds - 11 * folded // 10 + MOVED * numbers + CALL * calls


def test_brain_floats_project_in_half_the_time() -> None:
    whole, half = (
        form_costs(Life(2, 11, 13, 4, dtype), SIZES) for dtype in (torch.float32, torch.bfloat16)
    )
    assert half["raw"] == whole["raw"]
    saved = whole["projected"].total - half["projected"].total
    assert saved == 11 * 3 * 148  # half of m·s·g·(c_k·d + c_v·e)


def test_equally_many_rows_want_a_form_by_the_reads_they_come_in() -> None:
    sizes = Sizes.of(512, 8, None, (None, None), None)
    once, often = (form_costs(Life(1, 257, 16, reads), sizes) for reads in (1, 16))
    assert choose_form("auto", once, []) == "raw"
    assert choose_form("auto", often, []) == "projected"
    assert form_costs(Life(1, 257, 16), sizes) == often  # one row a read, if nothing is said
    assert choose_form("auto", once, ["it has a key norm"]) == "projected"


@pytest.mark.parametrize(
    ("queries", "reads", "name"), [(-1, None, "queries"), (3, 4, "reads"), (3, -1, "reads")]
)
def test_counts_that_no_life_has_are_refused(queries: int, reads: int | None, name: str) -> None:
    with pytest.raises(ContractError, match=f"`{name}` must be"):
        form_costs(Life(1, 5, queries, reads), SIZES)


def test_a_read_without_rows_is_one() -> None:
    assert form_costs(Life(1, 5, queries=0, reads=1), SIZES)["raw"].multiply_adds == 0


def test_forms_are_checked_before_there_is_a_life() -> None:
    check_form("auto", ["it has hooks"])
    with pytest.raises(ContractError, match="it has hooks"):
        check_form("raw", ["it has hooks"])
    with pytest.raises(ContractError, match="`form` must be"):
        check_form("cooked", [])
