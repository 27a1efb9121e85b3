"""Retrieve and condition: a question reads thousands of facts and answers from the right one.

A memory gathers documents, each some facts about one person; it is remembered once and shared by
many questions. Half of all people are held out of training, which reads hundreds of facts. Of more
facts, the wrong ones together weigh more: so scores grow with log s (Chiang & Cholak 2022).
"""

import sys
from math import log
from pathlib import Path
from timeit import repeat

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import crossattention as xa
from door import enter, leave, save

FIRST = ["Ada", "Ben", "Cleo", "Dora", "Elsa", "Finn", "Gina", "Hugo", "Iris", "Jack", "Kim", "Leo"]
LAST = ["Abbot", "Berg", "Cook", "Dahl", "Eliot", "Frost", "Gold", "Hart", "Kerr", "Lind", "Moss"]
EVENTS = ["born in", "left in", "moved in", "sailed in", "sang in", "voted in", "wed in", "won in"]
WORDS = [*FIRST, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ", *LAST, *EVENTS, *range(1900, 2000)]


def gather(people: Tensor, memories: int, documents: int, asked: int) -> tuple[Tensor, ...]:
    """Draw facts [m, s, 5] of so many documents, lengths [m], and facts [m·asked, 5] to ask for."""
    told = torch.rand(memories, documents * 8).argsort(1)[:, : documents * 6]
    who = people[torch.rand(memories, len(people)).argsort(1)].gather(1, told // 8)
    words = who // 286, who // 11 % 26, who % 11, told % 8, torch.randint(100, told.shape)
    facts = torch.stack(words, 2) + torch.tensor([0, 12, 38, 49, 57])  # each kind's first word
    lengths = torch.randint(documents * 3, documents * 6 + 1, (memories,))
    rows = (torch.rand(memories, asked, 1) * lengths[:, None, None]).long()
    return facts, lengths, facts.take_along_dim(rows, 1).flatten(0, 1)


class Reader(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width)
        self.read = xa.CrossAttention(4 * width, heads=1, memory_width=5 * width)
        self.year = nn.Linear(4 * width, len(WORDS))

    def forward(self, facts: Tensor, lengths: Tensor, asked: Tensor) -> tuple[Tensor, ...]:
        """Score each word as the year that is asked for, [b, words]; and give what was read."""
        self.read.scale = log(facts.shape[1], 512) / self.read.sizes.key_width**0.5
        memory = self.read.remember(self.words(facts).flatten(2), lengths)
        memory = memory.shared_by(len(asked) // len(facts))
        query = self.words(asked[:, None, :4]).flatten(2)  # all but the year: -> [b, 1, c]
        return self.year(self.read(query, memory))[:, 0], query, memory


def cost(model: Reader, people: Tensor, documents: int) -> tuple[int, float, float]:
    """Count facts, million multiply-adds, milliseconds: remember once, and answer 64 questions."""
    given = gather(people, 1, documents, 64)
    with FlopCounterMode(display=False) as counter:
        model(*given)
    seconds = min(repeat(lambda: model(*given), number=1, repeat=9))
    return given[0].shape[1], counter.get_total_flops() / 2e6, 1000 * seconds


@torch.no_grad()
def test(model: Reader, people: Tensor, out: Path) -> dict[str, float]:
    facts, lengths, asked = gather(people, 8, 1024, 250)
    answer, query, memory = model(facts, lengths, asked)
    weight, row = model.read.weights(query, memory)[:, 0, 0].topk(6)  # [b, 1, 1, s] -> [b, 6]
    model.read.kernel = "matmul"  # whose products torch's counter sees
    costs = torch.tensor([cost(model, people, n) for n in range(200, 1601, 200)]).T
    figure = Figure(figsize=(13, 4), layout="constrained")
    *panels, last = figure.subplots(1, 3)
    for panel, unit, y in zip(panels, ("10⁶ multiply-adds", "time, ms"), costs[1:], strict=True):
        panel.plot(costs[0].tolist(), y.tolist(), "o-")
        panel.set(xlim=0, ylim=0, xlabel="facts", ylabel=unit, title="Remembering and 64 answers")
    told = [" ".join(str(WORDS[word]) for word in fact) for fact in facts[-1, row[-1].flip(0)]]
    last.barh(told, weight[-1].flip(0).tolist())
    question = " ".join(WORDS[word] for word in asked[-1, :4])
    last.set(xlabel=f"weight, of {lengths[-1]:,} facts", title=f"“{question} …?” reads")
    save(figure, out / "retrieve.png")
    return {
        "facts": lengths.float().mean(),
        "exact_match": (answer.argmax(1) == asked[:, 4]).float().mean(),
        "points_at_it": (facts[memory.owner.index, row[:, 0]] == asked).all(1).float().mean(),
        "growth_of_multiply_adds": log(costs[1, -1] / costs[1, 1], 4),  # 1 is linear
        "growth_of_milliseconds": log(costs[2, -1] / costs[2, 1], 4),
    }


def main(words: list[str] | None = None) -> None:
    args = enter(__doc__, words)
    model, steps = Reader(), 1500 if args.full else 300
    known, held_out = torch.randperm(12 * 26 * 11).chunk(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.1)
    for step in range(1, steps + 1):
        given = gather(known, 4, min(85, 4 + 160 * step // steps), 32)  # few facts first
        loss = nn.functional.cross_entropy(model(*given)[0], given[2][:, 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: {len(given[0][0])} facts, loss {loss:.4f}", file=sys.stderr)
    leave("retrieve", args, test(model, held_out, args.out))


if __name__ == "__main__":
    main()
