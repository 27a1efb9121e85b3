"""What a memory is made of: rows, what one layer keeps of them, and the layer's stamp on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from crossattention.argument import FLOATS, check_tensor
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

    @staticmethod
    def find(contents: Mapping[int, Content], layer: int, stamp: Stamp) -> Content:
        """Find what a layer wrote; raise if it wrote nothing, or has changed since.

        >>> Content.find({7: Content(stamp=())}, 7, ()).key is None
        True
        """
        found = contents.get(layer)
        if found is None:
            want, do = "made by the layer that reads it", "call remember(...) with this layer"
            raise ContractError(complaint("memory", want, "one made by others", do))
        found.check(stamp)
        return found

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Content:
        """Change keys and values alike.

        >>> Content((), torch.ones(2), torch.ones(2)).mapped(lambda x: x + 1).key.tolist()
        [2.0, 2.0]
        """
        if self.key is None or self.value is None:
            return self
        return Content(self.stamp, change(self.key), change(self.value))

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

    >>> check_rows(torch.ones(2, 3, 4), torch.ones(2, 3, 5))
    """
    want, do = "a float tensor [m, s, c]", "pass what the encoder returned, one row a position"
    check_tensor("rows", rows, FLOATS, want, do, rank=3)
    if value_rows is None:
        return
    check_tensor("value_rows", value_rows, FLOATS, want, do, rank=3)
    names = "rows` and `value_rows"
    if value_rows.shape[:2] != rows.shape[:2]:
        shapes = f"shapes {list(rows.shape)} and {list(value_rows.shape)}"
        do = "each row has one key and one value"
        raise ContractError(complaint(names, "of equal m and s", shapes, do))
    if value_rows.device != rows.device:
        places = f"{rows.device} and {value_rows.device}"
        raise ContractError(complaint(names, "on one device", places, "move either"))


def versions_of(*kept: Tensor | None) -> tuple[int, ...]:
    """Read how often tensors have been written to; empty where nothing is known of it.

    Inference tensors do not count, and a compiled graph does not look.

    >>> rows = torch.ones(2, 3, 4)
    >>> before = versions_of(rows)
    >>> versions_of(rows.zero_()) == before
    False
    """
    given = [tensor for tensor in kept if tensor is not None]
    if torch.compiler.is_compiling() or any(tensor.is_inference() for tensor in given):
        return ()
    return tuple(tensor._version for tensor in given)


def kept_rows(
    rows: Tensor | None, value_rows: Tensor | None, versions: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Give the rows that keys and values come from, as they were when they were remembered.

    Raises:
        ContractError: they are no longer there, or have been written to since `versions`.

    >>> rows = torch.ones(2, 3, 4)
    >>> kept_rows(rows, None, versions_of(rows))[1].shape
    torch.Size([2, 3, 4])
    """
    if rows is None:
        do = "make the memory from rows again, or remember in the projected form before"
        raise ContractError(complaint("rows", "still there", "a memory without rows", do))
    now = versions_of(rows, value_rows)
    if now and versions and now != versions:
        do = "call remember again, or give it a copy where a buffer is filled anew"
        want, given = "as they were when they were remembered", "rows that were written to since"
        raise ContractError(complaint("rows", want, given, do))
    return rows, rows if value_rows is None else value_rows


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
