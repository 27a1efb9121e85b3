"""Which edition of growing rows a value is: rows behind it leave it valid, replaced rows do not.

Values that grew out of each other keep one log. A value is outdated when rows that it holds have
been replaced since it was made; one that grew sideways, from a value that had grown already, starts
a log of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crossattention.errors import ContractError, complaint


@dataclass
class _Log:
    newest: int = 0
    cuts: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Edition:
    """A place in the history of growing rows.

    Attributes:
        rows: how many there are.
        log: what has been cut and how far the rows have grown, shared by all who grew from one.
        seen: how many cuts had been made when this value was.

    >>> Edition.of(5).extended(2).rows
    7
    """

    rows: int
    log: _Log
    seen: int = 0

    @classmethod
    def of(cls, rows: int) -> Edition:
        """Begin with some rows.

        >>> Edition.of(5).seen
        0
        """
        return cls(rows, _Log(rows))

    def check(self) -> None:
        """Raise if some of the rows have been replaced since.

        >>> old = Edition.of(3)
        >>> new = old.cut(2)
        >>> old.check()
        Traceback (most recent call last):
        crossattention.errors.ContractError: `memory` must be the newest, got one whose rows from \
2 on were replaced; read what `replace` returned.
        """
        if len(self.log.cuts) == self.seen:
            return
        first = min(self.log.cuts[self.seen :])
        if first < self.rows:
            given = f"one whose rows from {first} on were replaced"
            do = "read what `replace` returned"
            raise ContractError(complaint("memory", "the newest", given, do))

    def extended(self, more: int) -> Edition:
        """Grow by some rows.

        >>> old = Edition.of(3)
        >>> old.extended(2).log is old.extended(2).log
        False
        """
        if self.log.newest != self.rows:
            return Edition.of(self.rows + more)
        self.log.newest += more
        return Edition(self.rows + more, self.log, len(self.log.cuts))

    def cut(self, rows: int) -> Edition:
        """Give up the rows from `rows` on, for all who share the log.

        >>> Edition.of(3).cut(2).rows
        2
        """
        self.log.cuts.append(rows)
        self.log.newest = rows
        return Edition(rows, self.log, len(self.log.cuts))
