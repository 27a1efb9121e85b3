"""A thousand English sentences of different lengths to translate: the same ones every time."""

from __future__ import annotations

from itertools import product

SUBJECTS = (
    "Tom", "She", "The old man", "My brother", "The teacher", "Our neighbour", "A little girl",
    "The doctor", "Mary", "Nobody in this town",
)  # fmt: skip
VERBS = (
    "bought", "found", "wanted to see", "forgot about", "was looking for", "has never liked",
    "would have taken", "spoke of", "gave me", "left",
)  # fmt: skip
OBJECTS = (
    "it.", "a red car.", "the black cat.", "the house near the river.", "two small books.",
    "the money that was on the table, and nobody knows why.", "a letter from his mother.",
    "the window of the kitchen when it began to rain yesterday evening.", "the answer.",
    "my friends, who had been waiting for the train since early in the morning.",
)  # fmt: skip


def sentences(count: int = 1000) -> list[str]:
    """Give `count` sentences, at most 1,000, evenly chosen from all."""
    every = [" ".join(words) for words in product(SUBJECTS, VERBS, OBJECTS)]
    return [every[at * len(every) // count] for at in range(count)]
