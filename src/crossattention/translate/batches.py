"""Batches of pairs of similar length, in an order that a seed and an epoch fix.

Pairs are sorted by length with chance among equals, cut where `pairs * longest sentence` would pass
the budget, and the batches shuffled; so batch k of an epoch is the same in every run, and a run
resumes in the middle of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from crossattention.errors import ContractError
from crossattention.translate.corpus import Corpus
from crossattention.translate.tokenizer import BEGIN, END, PAD

Ints = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """One training batch.

    Args:
        source: `[b, s]` token ids, each sentence closed by the end token, then padding.
        source_lengths: `[b]`, the end token included.
        target_in: `[b, t]`, begin and the sentence.
        target_out: `[b, t]`, the sentence and end; padding has id 0 and teaches nothing.
        links: `[b, t, s]` or None. Row i is what the reading head should see after target_in[i]: a
            distribution over source tokens that sums to 1, or all zero where there is nothing to
            learn (begin, padding).
    """

    source: torch.Tensor
    source_lengths: torch.Tensor
    target_in: torch.Tensor
    target_out: torch.Tensor
    links: torch.Tensor | None


def plan_batches(corpus: Corpus, budget: int, seed: int, epoch: int) -> list[Ints]:
    """Choose the pairs of each batch of one epoch.

    Args:
        corpus: the pairs.
        budget: most tokens a padded side of a batch may hold, begin or end included.
        seed: of the whole run.
        epoch: from 0.

    Returns:
        Pair numbers of each batch, each pair once.

    Raises:
        ContractError: one pair alone passes the budget.
    """
    source, target = corpus.source.lengths + 1, corpus.target.lengths + 1
    size = np.maximum(source, target)
    if size.max() > budget:
        raise ContractError(
            f"`budget` must hold the longest sentence of {int(size.max())} tokens, got {budget}; "
            "raise it or leave long pairs out."
        )
    chance = np.random.default_rng([seed, epoch])
    order = np.lexsort((chance.random(len(corpus)), source, target))
    batches: list[Ints] = []
    first, longest = 0, 0
    for at, length in enumerate(size[order].tolist()):
        longest = max(longest, length)
        if longest * (at + 1 - first) > budget:
            batches.append(order[first:at])
            first, longest = at, length
    batches.append(order[first:])
    return [batches[at] for at in chance.permutation(len(batches))]


def stream(
    corpus: Corpus, budget: int, seed: int, start: tuple[int, int], epochs: int
) -> Iterator[tuple[int, int, Batch]]:
    """Yield (epoch, number, batch) from `start` = (epoch, number) to the last epoch."""
    first_epoch, first_batch = start
    for epoch in range(first_epoch, epochs):
        plan = plan_batches(corpus, budget, seed, epoch)
        for number in range(first_batch if epoch == first_epoch else 0, len(plan)):
            yield epoch, number, collate(corpus, plan[number])


def collate(corpus: Corpus, pairs: Ints) -> Batch:
    """Pad the chosen pairs into one batch."""
    sources = corpus.source.lengths[pairs] + 1
    targets = corpus.target.lengths[pairs] + 1
    count, s, t = len(pairs), int(sources.max()), int(targets.max())
    source = np.full((count, s), PAD, dtype=np.int64)
    target_in = np.full((count, t), PAD, dtype=np.int64)
    target_out = np.full((count, t), PAD, dtype=np.int64)
    links = None if corpus.links is None else np.zeros((count, t, s), dtype=np.float32)
    for row, pair in enumerate(pairs.tolist()):
        source_ids, source_words = corpus.source.tokens(pair)
        target_ids, target_words = corpus.target.tokens(pair)
        source[row, : len(source_ids)] = source_ids
        source[row, len(source_ids)] = END
        target_in[row, 0] = BEGIN
        target_in[row, 1 : len(target_ids) + 1] = target_ids
        target_out[row, : len(target_ids)] = target_ids
        target_out[row, len(target_ids)] = END
        if links is not None and corpus.links is not None:
            part = slice(corpus.links.starts[pair], corpus.links.starts[pair + 1])
            ends = corpus.links.source[part], corpus.links.target[part]
            block = _token_links(source_words, target_words, *ends)
            links[row, 1 : len(target_ids) + 1, : len(source_ids) + 1] = block
    return Batch(
        torch.from_numpy(source),
        torch.from_numpy(sources),
        torch.from_numpy(target_in),
        torch.from_numpy(target_out),
        None if links is None else torch.from_numpy(links),
    )


def _token_links(
    source_words: npt.NDArray[np.int32],
    target_words: npt.NDArray[np.int32],
    linked_source: npt.NDArray[np.int16],
    linked_target: npt.NDArray[np.int16],
) -> npt.NDArray[np.float32]:
    """Spread word links over sub-words `[target, source + 1]`; unlinked words read the end."""
    words = np.zeros(
        (target_words.max(initial=-1) + 1, source_words.max(initial=-1) + 1), np.float32
    )
    words[linked_target, linked_source] = 1
    tokens = words[target_words][
        :, source_words
    ]  # [words, words] -> [target tokens, source tokens]
    total = tokens.sum(axis=1, keepdims=True)
    return np.concatenate([tokens / np.maximum(total, 1), total == 0], axis=1, dtype=np.float32)
