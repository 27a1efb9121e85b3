"""Judge a model by its translations of held-out sentences: BLEU against all references.

A sentence often has several right translations; each distinct source is translated once and compared with all of them
(Papineni et al. 2002; sacrebleu, Post 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from crossattention.seq2seq import EncoderDecoder
from crossattention.translate.tokenizer import BEGIN, END, PAD, Tokenizer

TranslateFn = Callable[[EncoderDecoder, Tokenizer, Sequence[str]], list[str]]


def bleu_of(translations: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Score translations against all references of each sentence, 0 to 100.

    >>> round(bleu_of(["le chat noir dort ."], [["le chien", "le chat noir dort ."]]))
    100
    """
    from sacrebleu.metrics.bleu import BLEU

    most = max(len(each) for each in references)
    # Each stream holds one reference a sentence; None marks a sentence that has fewer.
    streams = [[r[k] if k < len(r) else None for r in references] for k in range(most)]
    return float(BLEU().corpus_score(list(translations), streams).score)


def translate_greedily(
    model: EncoderDecoder, tokenizer: Tokenizer, sentences: Sequence[str], batch: int = 128
) -> list[str]:
    """Translate each sentence by its likeliest next token, longest sentences first.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        sentences: source texts, none longer than the model's `max_length` tokens.
        batch: sentences at once.

    Returns:
        Translations in the order of the sentences.
    """
    device = next(model.parameters()).device
    encoded = [[*tokenizer.encode(text), END] for text in sentences]
    order = sorted(range(len(encoded)), key=lambda at: -len(encoded[at]))
    found = [""] * len(encoded)
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        lengths = torch.tensor([len(encoded[at]) for at in part], device=device)
        source = torch.full((len(part), int(lengths.max())), PAD, device=device)
        for row, at in enumerate(part):
            source[row, : len(encoded[at])] = torch.tensor(encoded[at], device=device)
        for at, ids in zip(part, _greedy(model, source, lengths), strict=True):
            found[at] = tokenizer.decode(ids)
    return found


@torch.inference_mode()
def _greedy(model: EncoderDecoder, source: torch.Tensor, lengths: torch.Tensor) -> list[list[int]]:
    memory = model.encode(source, lengths)
    state = model.start(memory)
    token = torch.full((len(source), 1), BEGIN, device=source.device)
    going = torch.ones(len(source), dtype=torch.bool, device=source.device)
    steps = []
    limit = min(2 * source.shape[1] + 10, model.config.max_length)
    for _ in range(limit):
        rows, state, _ = model.step(token, memory, state)
        token = model.logits(rows[:, -1]).argmax(dim=-1, keepdim=True)  # [b, 1, c] -> [b, 1]
        going = going & (token[:, 0] != END)
        if not going.any():
            break
        steps.append(token[:, 0].masked_fill(~going, PAD))
    if not steps:
        return [[] for _ in range(len(source))]
    return [[i for i in row if i != PAD] for row in torch.stack(steps, dim=1).tolist()]
