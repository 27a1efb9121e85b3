"""What one layer keeps of a memory, with the layer's stamp on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.argument import FLOATS
from crossattention.errors import ContractError, complaint, describe
from crossattention.grown import Grown

Stamp = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Content:
    """What one layer keeps of a memory: keys [m, g, s, d] and values [m, g, s, e], or neither.

    A layer that keeps neither reads the rows themselves. `stamp` is the state of the layer's
    parameters when it wrote the content.

    >>> Content(stamp=()).key is None
    True
    """

    stamp: Stamp
    keys: Grown | None = None
    values: Grown | None = None

    @classmethod
    def of(cls, stamp: Stamp, key: Tensor, value: Tensor) -> Content:
        """Keep keys and values.

        >>> Content.of((), torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 5)).value.shape
        torch.Size([1, 2, 3, 5])
        """
        return cls(stamp, Grown.of(key, axis=2), Grown.of(value, axis=2))

    @property
    def key(self) -> Tensor | None:
        """The keys, if they are kept."""
        return None if self.keys is None else self.keys.rows

    @property
    def value(self) -> Tensor | None:
        """The values, if they are kept."""
        return None if self.values is None else self.values.rows

    @staticmethod
    def find(contents: Mapping[int, Content], layer: int, stamp: Stamp, rows: int) -> Content:
        """Find what a layer wrote; raise if it wrote nothing, or has changed since, or lags behind.

        >>> Content.find({7: Content(stamp=())}, 7, (), rows=3).key is None
        True
        """
        found = contents.get(layer)
        if found is None:
            want, do = "made by the layer that reads it", "call remember(...) with this layer"
            raise ContractError(complaint("memory", want, "one made by others", do))
        found.check(stamp)
        if found.keys is not None and found.keys.length != rows:
            want = f"remembered to its last row, {rows} in all"
            given = f"{found.keys.length} that this layer has projected"
            do = "call remember(memory) with this layer: it projects what is new"
            raise ContractError(complaint("memory", want, given, do))
        return found

    def begun(self, stamp: Stamp, rows: int) -> int:
        """Count the rows that need not be projected again, where some were put behind them.

        >>> Content.of(((1, 2, 3),), torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)).begun(
        ...     ((1, 2, 3),), rows=5
        ... )
        3
        """
        if self.keys is None or not stamp or self.stamp != stamp or self.keys.length >= rows:
            return 0  # projected whole, it is projected anew: gradients may be on by now
        return self.keys.length

    def extended(self, key: Tensor, value: Tensor) -> Content:
        """Put keys and values of new rows behind the last.

        >>> short = Content.of((), torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))
        >>> short.extended(torch.ones(1, 2, 1, 4), torch.ones(1, 2, 1, 4)).key.shape
        torch.Size([1, 2, 4, 4])
        """
        if self.keys is None or self.values is None:
            return self
        return Content(self.stamp, self.keys.extended(key), self.values.extended(value))

    def cut(self, rows: int) -> Content:
        """Give up what was projected from the rows from `rows` on.

        >>> Content.of((), torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4)).cut(1).key.shape
        torch.Size([1, 2, 1, 4])
        """
        if self.keys is None or self.values is None:
            return self
        return Content(self.stamp, self.keys.cut(rows), self.values.cut(rows))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Content:
        """Change keys and values alike.

        >>> Content.of((), torch.ones(1, 1, 2), torch.ones(1, 1, 2)).mapped(lambda x: -x).key.sum()
        tensor(-2.)
        """
        if self.keys is None or self.values is None:
            return self
        return Content(self.stamp, self.keys.mapped(change), self.values.mapped(change))

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


def check_target(target: torch.device | str | torch.dtype) -> torch.device | torch.dtype:
    """Check where, or in which dtype, a memory is to be kept.

    >>> check_target("cpu")
    device(type='cpu')
    """
    given = describe(target)
    if isinstance(target, torch.dtype):
        if target in FLOATS:
            return target
        given = str(target)
    else:
        try:
            return torch.device(target)
        except (RuntimeError, TypeError):
            pass
    names = ", ".join(str(each).removeprefix("torch.") for each in FLOATS)
    want = f"a device, or a dtype among {names}"
    raise ContractError(complaint("target", want, given, 'pass "cuda" or torch.float16, say'))
