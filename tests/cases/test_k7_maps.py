"""K7, map identity: what is shown is what was read, by the row, head and sequence it belongs to."""

from __future__ import annotations

import importlib
import random

import pytest
import torch

import crossattention as xa
from cases.book import Case, load
from cases.draws import problem, some_visible
from cases.judge import right
from cases.paths import LAYERS, Path, build, compute, masks
from cases.runner import EVERY_PATH, check, every_form, name
from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.seq2seq.batch import Batch
from crossattention.seq2seq.rules import Rules

CASES = load("k7_maps")
REPORTS = [case for case in CASES if case.op == "maps"]


@pytest.mark.parametrize(("case", "form"), every_form(CASES), ids=name)
def test_case(case: Case, form: str) -> None:
    check(case, form)


@pytest.mark.parametrize("form", ["attend", *LAYERS])
@pytest.mark.parametrize("case", REPORTS, ids=name)
def test_heads_are_shown_when_asked(case: Case, form: str) -> None:
    for dtype in case.dtypes:
        given, report = case.tensors(dtype), case.inputs["report"]
        heads = None if report["heads"] == "all" else report["heads"]
        if form == "attend":
            found = xa.attention_weights(given["query"], given["key"], **masks(given))
            found = found if heads is None else found[:, heads]
        else:
            layer, query, rows, value_rows = build(given, Path(form, dropout=0.2, mode="train"))
            memory, arguments = rows, {"heads": heads}
            if form == "fresh" and "lengths" in given:
                real = torch.arange(rows.shape[1]) < torch.tensor(given["lengths"])[:, None]
                arguments["visible"] = real[:, None, None]
            elif form != "fresh":
                memory = layer.remember(
                    rows, given.get("lengths"), value_rows=value_rows, form=form
                )
            found = layer.weights(query, memory, **arguments)
            assert torch.equal(found, layer.weights(query, memory, **arguments))
        found = found.mean(1) if report["reduce"] == "mean" else found
        right("maps", found, case.expected("maps"), case.tolerance(dtype) or 0)


@pytest.mark.parametrize("form", LAYERS[:2])
def test_maps_of_some_heads_keep_no_others(form: str) -> None:
    layer = xa.CrossAttention(8, 4)
    memory = layer.remember(torch.randn(3, 7, 8), form=form)
    with torch.no_grad():
        for heads in ([1], [3, 0], None):
            found = layer.weights(torch.randn(3, 5, 8), memory, heads=heads)
            assert found.untyped_storage().nbytes() == 4 * found.numel()


def test_a_head_that_is_not_there_is_refused_with_the_range() -> None:
    layer = xa.CrossAttention(8, 2)
    query, rows = torch.ones(1, 3, 8), torch.ones(1, 5, 8)
    for heads in ([2], [0, -1]):
        with pytest.raises(xa.ContractError, match="`heads` must be .*0 (and|to) 1"):
            layer.weights(query, rows, heads=heads)


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_maps_and_values_give_the_output(path: Path) -> None:
    torch.manual_seed(22)
    given = problem() | {"visible": some_visible(3, 4, 5, 7), "lengths": [7, 2, 5]}
    found = compute(given, path)
    read = found["weights"] @ given["value"].repeat_interleave(2, 1)
    torch.testing.assert_close(found["output"], read)


@pytest.mark.parametrize("path", EVERY_PATH, ids=name)
def test_a_map_with_one_reading_names_its_row(path: Path) -> None:
    """Query (b, h, t) is made to read row (5b + 3h + 2t) mod 7 and no other."""
    b, h, t = torch.meshgrid(torch.arange(3), torch.arange(4), torch.arange(5), indexing="ij")
    wanted = (5 * b + 3 * h + 2 * t) % 7
    eye = torch.eye(7, dtype=torch.float64)
    given = {"query": 1000 * eye[wanted], "key": eye.expand(3, 2, 7, 7), "value": eye.expand(
        3, 2, 7, 7)}  # fmt: skip
    found = compute(given, path)
    torch.testing.assert_close(found["weights"], eye[wanted])
    torch.testing.assert_close(found["output"], eye[wanted])


def followed(
    maps: torch.Tensor, parents: list[list[int]], final: list[int], sentences: int, prompt: int
) -> list[torch.Tensor]:
    """Let a real batch of lanes move as `parents` say, and ask it what each final lane read."""
    _, rows, s = maps.shape
    lanes = rows // sentences
    config = Config(vocabulary=11, width=4, heads=2, feed_forward=4, encoder_layers=1,
                    decoder_layers=1)  # fmt: skip
    model = EncoderDecoder(config).eval()
    source = torch.full((sentences, s), 3)
    rules = Rules.of(config, [s] * sentences, 20, None)
    with torch.no_grad():
        memory = model.encode(source, [s] * sentences)
        batch = Batch(model, memory, rules, lanes, align=True)
    batch.maps = [torch.full((rows, s), torch.nan, dtype=maps.dtype)] * (1 + prompt) + list(maps)
    tokens = torch.full((sentences, lanes), 5)
    scores = batch.trail.scores.new_zeros(sentences, lanes)
    for _ in range(prompt + 1):
        batch.write(tokens, scores)
    local = [torch.tensor(step).view(sentences, lanes) % lanes for step in parents]
    for step in local[:-1]:
        batch.write(tokens, scores, step)
    found = []
    for row in final:
        sentence, lane = divmod(row, lanes)
        kept = batch.finish(sentence, int(local[-1][sentence, lane]), 0.0)
        assert len(kept.tokens) == prompt + len(parents)
        found.append(kept.alignment)
    return found


@pytest.mark.parametrize("case", [case for case in CASES if case.id == "C29"], ids=name)
def test_maps_follow_their_lanes(case: Case) -> None:
    for dtype in case.dtypes:
        maps, prompt = case.tensors(dtype)["maps"], case.inputs.get("prompt", 0)
        parents, final = case.inputs["parents"], case.inputs["final_rows"]
        found = followed(maps, parents, final, 2 if maps.shape[1] == 4 else 1, prompt)
        for alignment, keys, stacked in zip(
            found, case.expect["keys"], case.expected("stacked"), strict=True
        ):
            positions = case.expect["positions"]
            assert positions == list(range(len(alignment)))[prompt:]
            assert torch.equal(alignment[positions].double(), stacked)
            assert alignment[positions].argmax(-1).tolist() == keys


@pytest.mark.parametrize("seed", range(12))
def test_maps_follow_a_history_traced_by_hand(seed: int) -> None:
    draw = random.Random(seed)
    sentences, lanes, steps = draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 6)
    rows, prompt = sentences * lanes, draw.randint(0, 2)
    parents = [
        [lane // lanes * lanes + draw.randrange(lanes) for lane in range(rows)]
        for _ in range(steps)
    ]
    maps = torch.eye(steps * rows).view(steps, rows, steps * rows)  # row r of step i: i·rows + r
    found = followed(maps, parents, list(range(rows)), sentences, prompt)
    for row, alignment in enumerate(found):
        read = alignment[prompt:].argmax(-1).tolist()
        for step in reversed(range(steps)):
            row = parents[step][row]
            assert read[step] == step * rows + row


@pytest.mark.xfail(
    strict=True, raises=ImportError, reason="needs the times of words: maps over audio frames"
)
@pytest.mark.parametrize("case", [case for case in CASES if case.id == "C30"], ids=name)
def test_times_of_tokens_and_words(case: Case) -> None:
    times = importlib.import_module("crossattention.maps.times")
    given = case.tensors(torch.float64)
    found = times.word_times(**given)
    right("times", torch.tensor(found.times), case.expected("times"), 1e-9)
    right("words", torch.tensor(found.word_times), case.expected("word_times"), 1e-9)
