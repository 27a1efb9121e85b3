import hashlib
import random

import pytest

from crossattention.errors import ContractError
from crossattention.translate.split import references, split_pairs


def _pairs() -> list[tuple[str, str]]:
    chance = random.Random(3)
    return [(f"en {chance.randrange(400)}", f"fr {chance.randrange(900)}") for _ in range(500)]


def test_no_sentence_on_both_sides_and_nothing_lost() -> None:
    pairs = [(f"en {k % 300}", f"fr {k // 2}") for k in range(500)]
    split = split_pairs(pairs, percent=30)
    assert sorted(split.train + split.held_out) == sorted(pairs)
    assert split.train and split.held_out
    for side in (0, 1):
        assert not {p[side] for p in split.train} & {p[side] for p in split.held_out}


def test_rule_is_the_digest_of_the_smallest_english_sentence() -> None:
    pairs = [(f"sentence {k}", f"phrase {k}") for k in range(300)]
    held = [
        (en, fr)
        for en, fr in pairs
        if int(hashlib.sha256(en.encode()).hexdigest(), 16) / 2**256 < 0.1
    ]
    assert split_pairs(pairs, percent=10).held_out == held
    chained = [("b", "x"), ("a", "x"), ("b", "y"), ("c", "y")]
    share = int(hashlib.sha256(b"a").hexdigest(), 16) * 100 // 2**256
    assert split_pairs(chained, percent=share).held_out == []
    assert split_pairs(chained, percent=share + 1).train == []


def test_order_of_the_file_plays_no_part() -> None:
    pairs = _pairs()
    held = set(split_pairs(pairs, percent=50).held_out)
    random.Random(5).shuffle(pairs)
    assert set(split_pairs(pairs, percent=50).held_out) == held


def test_references_keep_order_and_drop_repeats() -> None:
    assert references([("a", "y"), ("b", "z"), ("a", "x"), ("a", "y")]) == {
        "a": ["y", "x"],
        "b": ["z"],
    }


def test_percent_is_checked() -> None:
    with pytest.raises(ContractError, match="`percent`"):
        split_pairs([("a", "b")], percent=101)
