import pytest

from crossattention.errors import ContractError
from crossattention.translate.tokenizer import BEGIN, END, PAD, Tokenizer, word_split

LINES = ["L'homme n'a pas dit «\u202foui\u202f».", "The man didn't say it's 1950."] * 5
TEXTS = [
    "L'homme n'a\u00a0pas  dit: «\u202fdon't!\u202f»",
    " 'tis the dogs' \n\n a",
    "<pad> [END] </s>",
    "🐈 e\u0301t\u00e9 \x00\x1a…",
    "",
    " ",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(LINES, 300)


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_and_words_agree(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {PAD, BEGIN, END} & set(ids)
    assert [word for word, _ in tokenizer.words(ids)] == word_split(text)
    owners = tokenizer.encode_words([text])[0][1]
    for index, (_, positions) in enumerate(tokenizer.words(ids)):
        assert positions == [at for at, owner in enumerate(owners) if owner == index]


def test_borders_of_words() -> None:
    assert word_split("l'homme, qu'il aujourd’hui: it's John's can't...") == [
        *("l'", "homme", ",", "qu'", "il", "aujourd’", "hui", ":"),
        *("it", "'s", "John", "'s", "can", "'t", "..."),
    ]


def test_every_position_has_one_word_even_for_broken_bytes(tokenizer: Tokenizer) -> None:
    cat = tokenizer.encode("🐈")
    ids = [BEGIN, *cat[:-1], *tokenizer.encode(" a'"), *tokenizer.encode("s b"), END]
    positions = [at for _, group in tokenizer.words(ids) for at in group]
    assert positions == list(range(1, len(ids) - 1))
    assert "�" in tokenizer.decode(ids)


def test_file_round_trip(tokenizer: Tokenizer, tmp_path) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.size == tokenizer.size > 259
    assert all(again.encode(text) == tokenizer.encode(text) for text in TEXTS)


def test_refusals(tokenizer: Tokenizer, tmp_path) -> None:
    with pytest.raises(ContractError, match="surrogate"):
        tokenizer.encode("\ud800")
    with pytest.raises(ContractError, match="`ids`"):
        tokenizer.decode([300])
    with pytest.raises(ContractError, match="`vocabulary`"):
        Tokenizer.train(LINES, 200)
    with pytest.raises(ContractError, match="`path`"):
        Tokenizer.load(tmp_path / "missing.json")
