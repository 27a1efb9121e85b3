"""The two errors of the library and the one sentence they are written in.

Every complaint at a public door reads: what must hold, what was given with its shape, what to do.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

import torch


class ContractError(ValueError):
    """An argument breaks the contract of a public door.

    >>> raise ContractError(complaint("heads", "at least 1", "0", "pass a positive integer"))
    Traceback (most recent call last):
    crossattention.errors.ContractError: `heads` must be at least 1, got 0; pass a positive integer.
    """


class NoKernelError(ContractError):
    """No kernel accepts the problem, or the one that was named does not; every refusal is listed.

    >>> raise NoKernelError("kernel `fused` was asked for, but: it has no soft cap.")
    Traceback (most recent call last):
    crossattention.errors.NoKernelError: kernel `fused` was asked for, but: it has no soft cap.
    """


def complaint(name: str, must_be: str, given: str, do: str) -> str:
    """Write an error's text: *`name` must be X, got Y; do Z.*

    Args:
        name: the argument as the caller wrote it; several are joined by "` and `".
        must_be: what must hold.
        given: what was given, with its shape (see `describe`).
        do: what the caller can do about it.

    >>> complaint("key", "of width 8", "width 7", "check the projection")
    '`key` must be of width 8, got width 7; check the projection.'
    """
    return f"`{name}` must be {must_be}, got {given}; {do}."


def describe(value: object) -> str:
    """Say what a value is, as error messages show it.

    >>> describe(torch.zeros(2, 3))
    'a float32 tensor of shape [2, 3]'
    """
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        if value.is_nested:  # its shape cannot be asked for
            return f"a nested {kind} tensor"
        if value.layout != torch.strided:
            kind = f"{str(value.layout).removeprefix('torch.')} {kind}"
        place = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"a {kind} tensor of shape {list(value.shape)}{place}"
    if isinstance(value, str | int | float | bool | None):
        return reprlib.repr(value)
    if isinstance(value, Sequence):
        return f"a {type(value).__name__} of {len(value)}: {reprlib.repr(value)}"
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" + ("" if shape is None else f" of shape {shape}")
