"""Draw in the terminal what each word of a translation read: a row a word, a column a source word.

    · < 0.05 ≤ ░ < 0.25 ≤ ▒ < 0.5 ≤ ▓ < 0.75 ≤ █

Weights are drawn as they are, never rescaled: what a word read from the end, which is no word, has
a column `∅` of its own wherever there is enough of it to be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crossattention.translate.translation import Translation

SHADES = ((0.75, "█"), (0.5, "▓"), (0.25, "▒"), (0.05, "░"))
SEEN = SHADES[-1][0]
END = "∅"
MOST = "reads most"
WIDEST = 16  # cells of a word; a longer one is cut
NARROWEST = 24
GAP = "  "
MARK, PLAIN = "\x1b[1;36m", "\x1b[0m"


@dataclass(frozen=True)
class _Column:
    head: str
    cells: list[str]
    width: int
    marked: frozenset[int] = frozenset()

    def line(self, row: int | None, colour: bool) -> str:
        """Show the head, or the cell of one row, as wide as the column."""
        from rich.cells import set_cell_size

        text = set_cell_size(self.head if row is None else self.cells[row], self.width)
        return f"{MARK}{text}{PLAIN}" if colour and row in self.marked else text


def draw(translation: Translation, width: int = 80, colour: bool = False) -> str:
    """Draw what each word read, in lines of at most `width` cells.

    A row names its word, shows the weights, and ends with the source word it read most and how much
    of it; columns that do not fit follow in a block below.

    Args:
        translation: with its words and alignment.
        width: cells of a line; below 24 it is taken as 24.
        colour: whether the strongest cell of a row is marked with an escape sequence.
    Returns:
        Lines joined by newlines; empty for a translation without words.

    >>> weights = ((0.75, 0.125, 0.125), (0.25, 0.0, 0.75))
    >>> words = {"source_words": ("cat", "s"), "words": ("les", "chats"), "alignment": weights}
    >>> print(draw(Translation("cats", "les chats", -0.5, **words)))
           cat  s   ∅   reads most
    les    ███  ░░  ░░  cat 75%
    chats  ▒▒▒  ·   ██  ∅ 75%
    """
    if not translation.words:
        return ""
    room = max(width, NARROWEST)
    longest = min(WIDEST, room // 3)
    names = [*(_fit(word, longest) for word in translation.source_words), END]
    best = [len(names) - 1 if at is None else at for at in translation.strongest()]
    rows = translation.alignment
    columns = [
        _shaded(name, [row[at] for row in rows], [row for row, b in enumerate(best) if b == at])
        for at, name in enumerate(names)
    ]
    if all(row[-1] < SEEN for row in rows):
        columns.pop()
    most = [f"{names[at]} {row[at]:.0%}" for row, at in zip(rows, best, strict=True)]
    columns.append(_Column(MOST, most, _widest([MOST, *most])))
    words = [_fit(word, longest) for word in translation.words]
    label = _Column("", words, _widest(words))
    return "\n\n".join(
        "\n".join(
            GAP.join(each.line(row, colour) for each in (label, *block)).rstrip()
            for row in (None, *range(len(rows)))
        )
        for block in _blocks(columns, room - label.width)
    )


def _shaded(name: str, weights: Sequence[float], marked: Sequence[int]) -> _Column:
    width = max(2, _widest([name]))
    cells = [next((block * width for least, block in SHADES if w >= least), "·") for w in weights]
    return _Column(name, cells, width, frozenset(marked))


def _blocks(columns: Sequence[_Column], room: int) -> Iterator[list[_Column]]:
    """Fill blocks of columns from the left, each as wide as there is room."""
    block: list[_Column] = []
    used = 0
    for column in columns:
        needed = len(GAP) + column.width
        if block and used + needed > room:
            yield block
            block, used = [], 0
        block.append(column)
        used += needed
    yield block


def _fit(word: str, longest: int) -> str:
    """Cut a word to a number of cells; what would move the cursor is shown as a space."""
    from rich.cells import cell_len, set_cell_size

    shown = "".join(letter if letter.isprintable() else " " for letter in word)
    return shown if cell_len(shown) <= longest else set_cell_size(shown, longest - 1) + "…"


def _widest(words: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, words))
