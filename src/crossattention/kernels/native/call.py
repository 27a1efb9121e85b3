"""One call of the library's plain C interface: addresses, sizes and strides, written side by side.

No tensor is folded, copied or expanded for it. Sizes, strides and dtypes are written once for all
readings that share them, and each reading adds where its tensors lie. What is written are `Problem`
and `Given` of source/layout.h.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch
from torch import Tensor

from crossattention.errors import ContractError, complaint
from crossattention.kernels.native.library import INSTRUCTIONS, best, loaded
from crossattention.mask import check_lengths
from crossattention.owner import Owner

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.bool: 3, torch.int64: 4}
_NOTHING = (0,) * 6
_PROBLEM, _GIVEN = struct.Struct("8qd49q"), struct.Struct("10qdq")
_NO_LENGTH, _NO_OWNER, _NOWHERE = 2, 3, 4  # what the library says of what it is given


class Given(NamedTuple):
    """What a reading brings, checked.

    Attributes:
        query, key, value: [b, h, t, d], [m, g, s, d] and [m, g, s, e].
        rows: which memory rows are real, bool [m, s], or how many from the first, int64 [m].
        visible, bias, offset: rank 4, each axis of [b, h, t, s] full or 1; offset [b, h, t, 1].
        owner: int64 [b].
    """

    query: Tensor
    key: Tensor
    value: Tensor
    rows: Tensor | None = None
    visible: Tensor | None = None
    bias: Tensor | None = None
    offset: Tensor | None = None
    owner: Tensor | None = None


class Layout(NamedTuple):
    """What all readings of the same shapes, strides and dtypes share.

    Attributes:
        told: sizes, strides and dtypes, as the library reads them.
        shape: of the value, [b, h, t, e].
        is_merged: whether the value lies as [b, t, h, e].
        is_empty: whether there is nothing to read, or nobody who does.

    >>> x = torch.ones(2, 5, 3, 4)
    >>> Layout.of(Given(x, x, x[..., :2]), softcap=0.0, instructions=-1).shape
    (2, 5, 3, 2)
    """

    told: bytes
    shape: tuple[int, int, int, int]
    is_merged: bool
    is_empty: bool

    @classmethod
    def of(cls, given: Given, softcap: float, instructions: int) -> Layout:
        """Write down what readings of tensors like these share."""
        query, key, value, rows, visible, bias, offset, _ = given
        (b, h, t, d), (m, g, s, e) = query.shape, value.shape
        is_merged = lies_merged(query)
        order = (t * h * e, e, h * e, 1) if is_merged else (h * t * e, t * e, e, 1)
        kind = DTYPES[query.dtype]
        told = _PROBLEM.pack(
            b, m, h, g, t, s, d, e, softcap,
            number(best()) if instructions < 0 else instructions,
            0, kind, *query.stride(),
            0, DTYPES[key.dtype], *key.stride(),
            0, DTYPES[value.dtype], *value.stride(),
            *_shared(visible), *_shared(bias), *_shared(offset), *_shared(rows),
            0, kind, *order,
        )  # fmt: skip
        return cls(told, (b, h, t, e), is_merged, not (m and s and b and h and t))

    def read(self, given: Given, scale: float, lse: Tensor | None = None) -> Tensor:
        """Read with tensors of this layout, and fill `lse`, float32 [b, h, t], if there is one.

        Raises:
            ContractError: a length below 0 or above s, an owner that is no memory, freed numbers.
        """
        query, key, value, rows, visible, bias, offset, owner = given
        output = empty(query, self.shape, self.is_merged)
        if self.is_empty or not (self.shape[3] or lse is not None):
            if rows is not None and rows.dim() == 1:
                check_lengths(rows, *key.shape[::2])
            if lse is not None:
                lse.fill_(-torch.inf)
            return output.zero_()
        lies = _GIVEN.pack(
            query.data_ptr(), key.data_ptr(), value.data_ptr(),
            0 if visible is None else visible.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            0 if offset is None else offset.data_ptr(),
            0 if rows is None else rows.data_ptr(),
            output.data_ptr(),
            0 if lse is None else lse.data_ptr(),
            0 if owner is None else owner.data_ptr(),
            scale, torch.get_num_threads(),
        )  # fmt: skip
        failed = loaded().crossattention_read(self.told, lies)
        if failed:
            _explain(failed, given)
        return output


def read(
    given: Given, scale: float, softcap: float, wants_lse: bool, instructions: int
) -> tuple[Tensor, Tensor | None]:
    """Read; give the value [b, h, t, e], and lse [b, h, t] or None.

    >>> from crossattention.kernels.native.library import absent
    >>> x = torch.ones(1, 1, 1, 2)
    >>> absent() != "" or read(Given(x, x, x), 1.0, 0.0, False, -1)[0].tolist() == [[[[1.0, 1.0]]]]
    True
    """
    layout = Layout.of(given, softcap, instructions)
    lse = given.query.new_empty(layout.shape[:3], dtype=torch.float32) if wants_lse else None
    return layout.read(given, scale, lse), lse


def lies_merged(query: Tensor) -> bool:
    """Whether heads lie side by side, [b, t, h, d] in memory, as in a layer.

    >>> lies_merged(torch.ones(2, 3, 5, 4).transpose(1, 2))
    True
    """
    return query.shape[2] > 1 and query.stride(1) < query.stride(2)


def empty(query: Tensor, shape: tuple[int, int, int, int], is_merged: bool) -> Tensor:
    """Make room for a value [b, h, t, e].

    >>> empty(torch.ones(1), (2, 5, 3, 4), True).transpose(1, 2).is_contiguous()
    True
    """
    if not is_merged:
        return query.new_empty(shape)
    b, h, t, e = shape
    return query.new_empty(b, t, h, e).transpose(1, 2)


def number(instructions: str | None) -> int:
    """Give the library's number of an instruction set; None is the widest, found when it runs.

    >>> number("avx2"), number(None)
    (1, -1)
    """
    return -1 if instructions is None else INSTRUCTIONS.index(instructions)


def _explain(failed: int, given: Given) -> None:
    """Raise what the library found; whoever checks lengths and owners says which."""
    memories, rows = given.key.shape[::2]
    if failed == _NO_LENGTH and given.rows is not None:
        check_lengths(given.rows, memories, rows)
    if failed == _NO_OWNER and given.owner is not None:
        Owner.of(given.owner, memories)
    if failed == _NOWHERE:
        want, do = "tensors with numbers", "clone them while they have some"
        found = "one whose storage is empty"
        raise ContractError(complaint("query`, `key` and `value", want, found, do))
    raise MemoryError("kernel `native` found no memory for its threads")


def _shared(tensor: Tensor | None) -> tuple[int, ...]:
    """Tell dtype and strides of a mask; an axis of one entry is shared by all."""
    if tensor is None:
        return _NOTHING
    strides = [
        0 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return 0, DTYPES[tensor.dtype], *strides, *(0,) * (4 - len(strides))
