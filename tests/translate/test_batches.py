import numpy as np
import pytest
import torch

from crossattention.errors import ContractError
from crossattention.translate.batches import collate, plan_batches, stream
from crossattention.translate.corpus import Corpus, encode_corpus
from crossattention.translate.links import Links
from crossattention.translate.tokenizer import BEGIN, END, PAD, Tokenizer

PAIRS = [("the black cat sleeps", "le chat noir"), ("zzyx", "qwv dort"), ("a b c d e", "a")] * 11


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    tokenizer = Tokenizer.train([side for pair in PAIRS[:3] for side in pair][:2], 270)
    starts = np.cumsum([0, *[3, 1, 0] * 11])
    source = np.array([0, 2, 1, 0] * 11, dtype=np.int16)
    target = np.array([0, 1, 2, 1] * 11, dtype=np.int16)
    return encode_corpus(PAIRS, tokenizer, Links(starts, source, target))


def test_each_pair_once_within_budget_and_repeatable(corpus: Corpus) -> None:
    plan = plan_batches(corpus, 97, seed=3, epoch=1)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(PAIRS)))
    for pairs in plan:
        batch = collate(corpus, pairs)
        assert max(batch.source.numel(), batch.target_in.numel()) <= 97
    again = plan_batches(corpus, 97, seed=3, epoch=1)
    other = plan_batches(corpus, 97, seed=3, epoch=2)
    assert [p.tolist() for p in plan] == [p.tolist() for p in again]
    assert [p.tolist() for p in plan] != [p.tolist() for p in other]


def test_resumes_in_the_middle(corpus: Corpus) -> None:
    whole = list(stream(corpus, 97, 3, (0, 0), epochs=2))
    half = list(stream(corpus, 97, 3, (0, 4), epochs=2))
    assert [item[:2] for item in whole[4:]] == [item[:2] for item in half]
    assert all(torch.equal(a[2].source, b[2].source) for a, b in zip(whole[4:], half, strict=True))


def test_collate_shifts_and_links(corpus: Corpus) -> None:
    batch = collate(corpus, np.array([0, 1]))
    assert (batch.target_in[:, 0] == BEGIN).all()
    assert batch.links is not None
    for row in range(2):
        source, source_words = corpus.source.tokens(row)
        target, target_words = corpus.target.tokens(row)
        s, t = len(source), len(target)
        assert batch.source_lengths[row] == s + 1
        assert batch.source[row].tolist()[: s + 1] == [*source, END]
        assert (batch.source[row, s + 1 :] == PAD).all()
        assert batch.target_in[row, 1 : t + 1].tolist() == target.tolist()
        assert batch.target_out[row, : t + 1].tolist() == [*target, END]
        assert batch.links[row, 0].sum() == 0 and batch.links[row, t + 1 :].sum() == 0
        linked = [{0: 0, 1: 2, 2: 1}, {1: 0}][row]
        for at in range(t):
            word = int(target_words[at])
            if word in linked:
                wanted = (source_words == linked[word]) / (source_words == linked[word]).sum()
                wanted = [*wanted, 0.0]
            else:
                wanted = [0.0] * s + [1.0]
            got = batch.links[row, at + 1, : s + 1].numpy()
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
            assert batch.links[row, at + 1, s + 1 :].sum() == 0


def test_one_pair_over_budget_and_foreign_links(corpus: Corpus) -> None:
    with pytest.raises(ContractError, match="`budget`"):
        plan_batches(corpus, 3, 0, 0)
    with pytest.raises(ContractError, match="`links`"):
        tokenizer = Tokenizer.train(["a"], 259)
        encode_corpus(PAIRS[:2], tokenizer, corpus.links)
