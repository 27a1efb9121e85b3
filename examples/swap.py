"""The classic mistake: query and memory swapped. With equal lengths nothing crashes.

Each query asks for the letter at one place of a word, the memory. Swapped, letters read places; all
shapes agree, and only what one letter tells is learned. Two laws name the mistake in a second, on
an untrained model: shuffle the memory: nothing changes; shuffle the queries: the outputs follow.
"""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from crossattention import nn as xnn
from door import enter, leave, save

LETTERS, LENGTH = 26, 12
CEILING = (1 + (LENGTH - 1) / LETTERS) / LENGTH  # one letter seen, the others guessed
WIRINGS = {"right": "tab:blue", "swapped": "tab:red"}


class Speller(nn.Module):
    """Answer each query with a letter, wired "right" or "swapped"."""

    def __init__(self, wired: str, width: int = 64) -> None:
        super().__init__()
        self.wired = wired
        self.places, self.letters = nn.Embedding(LENGTH, width), nn.Embedding(LETTERS, width)
        self.block = xnn.CrossBlock(width, heads=4, feed_forward=2 * width)
        self.answer = nn.Linear(width, LETTERS)

    def embed(self, asked: Tensor, word: Tensor) -> tuple[Tensor, Tensor]:
        """Embed places [b, t] as queries, and letters [b, s] in their places as a memory."""
        return self.places(asked), self.letters(word) + self.places.weight

    def forward(self, query: Tensor, memory: Tensor) -> Tensor:
        """Score the letters: [b, t, c], [b, s, c] -> [b, t, 26]."""
        right = self.wired == "right"
        return self.answer(self.block(query, memory) if right else self.block(memory, query))


def draw(words: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw places to ask for, in any order, words, and the letters at those places: all [b, 12]."""
    asked, word = torch.rand(words, LENGTH).argsort(1), torch.randint(LETTERS, (words, LENGTH))
    return asked, word, word.gather(1, asked)


def laws(model: Speller) -> list[float]:
    """Give the largest difference from what each law says: 0 where it is kept."""
    query, memory = model.embed(*draw(64)[:2])
    output, order = model(query, memory), torch.randperm(LENGTH)
    memory_shuffled = model(query, memory[:, order]) - output
    queries_shuffled = model(query[:, order], memory) - output[:, order]
    return [memory_shuffled.abs().max().item(), queries_shuffled.abs().max().item()]


def train(model: Speller, steps: int) -> list[float]:
    """Train on new words at each step; give the accuracy on them, before, at some steps."""
    optimizer, curve = torch.optim.Adam(model.parameters(), lr=5e-4), []
    for step in range(steps + 1):
        asked, word, right = draw(64)  # of 26^12 words, none is met twice
        scores = model(*model.embed(asked, word))
        if step % 20 == 0:
            curve.append((scores.argmax(2) == right).float().mean().item())
            print(f"wired {model.wired}, step {step}: {curve[-1]:.1%} right", file=sys.stderr)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores.flatten(0, 1), right.flatten()).backward()
        optimizer.step()
    return curve


def picture(path: Path, curves: dict[str, list[float]], broken: dict[str, list[float]]) -> None:
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.axhline(CEILING, color="grey", linestyle=":", label="one letter seen, the rest guessed")
    for place, (wired, colour) in enumerate(WIRINGS.items()):
        steps = range(0, 20 * len(curves[wired]), 20)
        left.plot(steps, curves[wired], color=colour, label=f"wired {wired}")
        heights = [max(difference, 1e-8) for difference in broken[wired]]
        bars = right.bar([place / 3, 1 + place / 3], heights, 0.3, color=colour)
        right.bar_label(bars, [f"{difference:.1g}" for difference in broken[wired]])
    left.set(xlabel="step", ylabel="letters right, of 1", title="Swapped, training runs and fails")
    left.legend()
    right.set(yscale="log", ylim=(1e-8, 100), title="How far the output is from what a law says")
    right.set_xticks([1 / 6, 7 / 6], ["memory shuffled, untrained", "queries shuffled, untrained"])
    save(figure, path)


def main(words: list[str] | None = None) -> None:
    args, figures = enter(__doc__, words), {}
    curves, broken = {}, {}
    for wired in WIRINGS:
        torch.manual_seed(args.seed)  # the same model and the same words
        model = Speller(wired)
        broken[wired] = figures[f"broken_{wired}"] = laws(model)
        curves[wired] = train(model, 600 if args.full else 200)
        asked, word, right = draw(1000)
        correct = model(*model.embed(asked, word)).argmax(2) == right
        figures[f"accuracy_{wired}"] = correct.float().mean().item()
    picture(args.out / "swap.png", curves, broken)
    leave("swap", args, figures | {"best_with_one_letter": CEILING})


if __name__ == "__main__":
    main()
