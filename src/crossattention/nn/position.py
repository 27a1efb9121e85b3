"""Positions as numbers beside or upon the rows: sines and cosines that are computed, or learned.

    features(p)  =  [p, sin(π f_j p), cos(π f_j p)],   f_j evenly spaced from 1 to resolution / 2

A position has one number for each axis, from -1 to 1, so that one scale serves inputs of any size;
the highest frequency is the Nyquist frequency of the resolution. Paper: Jaegle et al. 2021,
"Perceiver: General Perception with Iterative Attention".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crossattention.argument import FLOATS, check_flag, check_size, check_tensor, on_host
from crossattention.errors import ContractError, complaint, describe

SLACK = 0.01  # a position that was computed may be rounded past 1; one that counts pixels is not


def fourier_features(
    positions: Tensor, bands: int, resolution: Sequence[int], *, with_positions: bool = True
) -> Tensor:
    """Describe positions by sines and cosines: sin(π f_j p) and cos(π f_j p) on each axis.

    Args:
        positions: floats `[..., k]`, one number for each axis, from -1 to 1.
        bands: how many frequencies f_j an axis has.
        resolution: k integers, how many positions an axis tells apart; f_j goes from 1 to half.
        with_positions: whether the positions themselves come first.
    Returns:
        `[..., (k +) 2 · k · bands]`, in the positions' dtype: positions, all sines, all cosines;
        sines and cosines axis by axis, each from the lowest frequency to the highest.
    Raises:
        ContractError: positions that are no floats, or beyond 1; another number of resolutions.

    Differs from Hugging Face's `generate_fourier_features`: each row's features are its own, where
    that takes those of the first sequence for all.

    >>> fourier_features(torch.tensor([[0.0], [0.5]]), bands=1, resolution=[8]).int().tolist()
    [[0, 0, 1], [0, 1, 0]]
    """
    want, do = (
        "floats [..., k] from -1 to 1",
        "see grid_positions, or scale them: 2 · i / (n-1) - 1",
    )
    check_tensor("positions", positions, FLOATS, want, do)
    if not positions.dim() or not positions.shape[-1]:
        raise ContractError(complaint("positions", want, describe(positions), do))
    if on_host(positions) and not bool((positions.abs() <= 1 + SLACK).all()):
        given = f"values from {float(positions.min())} to {float(positions.max())}"
        raise ContractError(complaint("positions", want, given, do))
    check_flag("with_positions", with_positions, "say whether they come first")
    exact = positions.to(torch.promote_types(positions.dtype, torch.float32))
    frequencies = _frequencies(exact, bands, resolution)
    turns = (exact[..., None] * frequencies).flatten(-2)  # [..., k, 1] · [k, f] -> [..., k·f]
    waves = [torch.sin(math.pi * turns), torch.cos(math.pi * turns)]
    return torch.cat([exact, *waves] if with_positions else waves, -1).to(positions.dtype)


def grid_positions(shape: Sequence[int]) -> Tensor:
    """Place the cells of a grid evenly from -1 to 1 on each axis, the last axis fastest.

    Args:
        shape: k integers, cells on each axis; the only cell of an axis stands at -1.
    Returns:
        float32 `[prod(shape), k]`, in the order of a flattened array.
    Raises:
        ContractError: no axis, or an axis without cells.

    >>> grid_positions([2, 3]).int().tolist()
    [[-1, -1], [-1, 0], [-1, 1], [1, -1], [1, 0], [1, 1]]
    """
    sizes = _check_axes("shape", shape, None, "pass the cells on each axis, as in (8, 8)")
    axes = [torch.linspace(-1.0, 1.0, size, dtype=torch.float32) for size in sizes]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, -2)


class LearnedPositions(nn.Module):
    """Add a learned row to each row of a stream: output[s] = stream[s] + weight[s].

    Args:
        rows: how many rows a stream has at most.
        width: c.

    `weight` `[rows, c]` begins normal with standard deviation 0.02.

    >>> LearnedPositions(rows=5, width=4)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        check_size("rows", rows, 1, "pass how many rows a stream has at most")
        check_size("width", width, 1, "pass the width of the stream")
        self.weight = nn.Parameter(torch.randn(rows, width) * 0.02)

    def forward(self, stream: Tensor) -> Tensor:
        """Map `[b, s, c]` to `[b, s, c]` in the stream's dtype, rounded once; s is at most `rows`.

        Raises:
            ContractError: no floats `[b, s, c]`, more rows than were learned, another device.
        """
        rows, width = self.weight.shape
        want = f"a float tensor [b, s, {width}], s at most {rows}, on {self.weight.device}"
        do = "rows beyond those have no position: cut the stream, or learn more"
        check_tensor("stream", stream, FLOATS, want, do, rank=3)
        if (
            stream.shape[1] > rows
            or stream.shape[2] != width
            or stream.device != self.weight.device
        ):
            raise ContractError(complaint("stream", want, describe(stream), do))
        return (stream + self.weight[: stream.shape[1]]).to(stream.dtype)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"rows={self.weight.shape[0]}, width={self.weight.shape[1]}"


def _frequencies(positions: Tensor, bands: int, resolution: Sequence[int]) -> Tensor:
    """The frequencies [k, f] of each axis, from 1 to half its resolution."""
    check_size("bands", bands, 1, "pass how many frequencies an axis has")
    do = "pass how many positions each axis tells apart"
    sizes = _check_axes("resolution", resolution, positions.shape[-1], do)
    return torch.stack([
        torch.linspace(1.0, size / 2, bands, dtype=positions.dtype, device=positions.device)
        for size in sizes
    ])  # fmt: skip


def _check_axes(name: str, given: Sequence[int], axes: int | None, do: str) -> list[int]:
    want = f"{'one or more' if axes is None else axes} integers, one for each axis"
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise ContractError(complaint(name, want, describe(given), do))
    if axes is not None and len(given) != axes:
        raise ContractError(complaint(name, want, describe(given), do))
    return [check_size(name, size, 1, do) for size in given]
