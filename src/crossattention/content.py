"""What a memory is made of: rows, what one layer keeps of them, and the layer's stamp on it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from crossattention.errors import ContractError, complaint, describe

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Content:
    """What one layer keeps of a memory: keys [m, g, s, d] and values [m, g, s, e], or neither.

    A layer that keeps neither reads the rows themselves. `stamp` is the state of the layer's
    parameters when it wrote the content.

    >>> Content(stamp=()).key is None
    True
    """

    stamp: Stamp
    key: Tensor | None = None
    value: Tensor | None = None

    def check(self, stamp: Stamp) -> None:
        """Raise if the layer has changed since it wrote.

        A stamp is empty where none could be read, inside a compiled graph: nothing is known then.

        >>> Content(stamp=((1, 2, 3),)).check(((1, 2, 4),))
        Traceback (most recent call last):
        crossattention.errors.ContractError: `memory` must be fresh, got a stale one; the layer's \
parameters changed since: call remember again.
        """
        if self.stamp and stamp and self.stamp != stamp:
            do = "the layer's parameters changed since: call remember again"
            raise ContractError(complaint("memory", "fresh", "a stale one", do))


def check_rows(rows: Tensor, value_rows: Tensor | None = None) -> None:
    """Check rows [m, s, c], and the rows that values come from if they are others.

    >>> import torch
    >>> check_rows(torch.ones(2, 3, 4), torch.ones(2, 3, 5))
    """
    for name, given in (("rows", rows), ("value_rows", value_rows)):
        if given is not None and (not given.is_floating_point() or given.dim() != 3):
            do = "pass what the encoder returned, one row for each source position"
            want = "a float tensor [m, s, c]"
            raise ContractError(complaint(name, want, describe(given), do))
    if value_rows is not None and value_rows.shape[:2] != rows.shape[:2]:
        names, shapes = "rows` and `value_rows", f"{list(rows.shape)} and {list(value_rows.shape)}"
        do = "each row has one key and one value"
        raise ContractError(complaint(names, "of equal m and s", shapes, do))
