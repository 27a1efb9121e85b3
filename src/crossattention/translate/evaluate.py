"""Judge a model on sentence pairs: BLEU and chrF of its translations, and how fast they come.

Each distinct source sentence is translated once. `bleu` and `chrf` compare with all its references;
`bleu_single` with the first one in the file. On the file that the model was trained on, only the
part held out from training counts (`split_pairs`). Papers: Papineni et al. 2002; Popović 2015; Post
2018 (sacrebleu, whose signatures say exactly what was computed).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crossattention.errors import ContractError, complaint
from crossattention.translate.data import Pairs
from crossattention.translate.judge import reference_streams
from crossattention.translate.split import references, split_pairs
from crossattention.translate.translator import Translator

CHUNK = 1000  # sentences between two reports of progress


@dataclass(frozen=True)
class Scores:
    """What a model's translations are worth.

    Attributes:
        bleu, bleu_single: 0 to 100, against all references and against the first.
        chrf: chrF2, 0 to 100, against all references.
        signature: sacrebleu's, of BLEU and of chrF.
        sentences: distinct source sentences that were translated.
        sentences_per_second: of translating, without loading and scoring.

    >>> Scores(30.0, 25.0, 50.0, "BLEU|nrefs:1", 100, 50.0).sentences
    100
    """

    bleu: float
    bleu_single: float
    chrf: float
    signature: str
    sentences: int
    sentences_per_second: float


def judged_pairs(translator: Translator, pairs: Pairs) -> list[tuple[str, list[str]]]:
    """Choose what a model may be judged on: what it was not trained on, as far as is known.

    Args:
        translator: knows the checksum of the file it was trained on.
        pairs: of a file, with its checksum.
    Returns:
        Distinct source sentences with their references, in file order: of the held-out part if the
        file is the one the model was trained on, else of all of it.
    """
    chosen = pairs.tuples()
    if pairs.checksum == translator.checksum:
        chosen = split_pairs(chosen).held_out
    return list(references(chosen).items())


def evaluate(
    translator: Translator,
    judged: Sequence[tuple[str, Sequence[str]]],
    *,
    beams: int = 4,
    progress: Callable[[int], None] = lambda sentences: None,
) -> Scores:
    """Translate sentences and score the translations.

    Args:
        translator: the model.
        judged: source sentences, each with at least one reference.
        beams: as in `Translator.translate`.
        progress: told how many sentences are done.
    Raises:
        ContractError: there is nothing to judge.
    """
    if not judged:
        do = "give more pairs, or others"
        raise ContractError(complaint("pairs", "sentences to judge on", "none", do))
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    sources = [source for source, _ in judged]
    found: list[str] = []
    start = time.perf_counter()
    for first in range(0, len(sources), CHUNK):
        part = translator.translate(sources[first : first + CHUNK], beams=beams)
        found += [each.text for each in part]
        progress(len(found))
    took = time.perf_counter() - start
    streams = reference_streams([known for _, known in judged])
    bleu, chrf = BLEU(), CHRF()
    scores = (
        float(bleu.corpus_score(found, streams).score),
        float(BLEU().corpus_score(found, streams[:1]).score),
        float(chrf.corpus_score(found, streams).score),
    )
    signature = f"BLEU|{bleu.get_signature()}; chrF2|{chrf.get_signature()}"
    return Scores(*scores, signature, len(found), len(found) / took)
