"""Fourier features, grids and learned positions: the formula, and Hugging Face's numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import crossattention as xa
from crossattention.nn import LearnedPositions, fourier_features, grid_positions

GRIDS = [(7,), (3, 5), (2, 3, 5), (1, 4)]


@pytest.mark.parametrize("shape", GRIDS, ids=str)
@pytest.mark.parametrize("bands", [1, 4, 7])
@pytest.mark.parametrize("with_positions", [True, False])
def test_numbers_and_order_are_those_of_the_perceiver(
    shape: tuple[int, ...], bands: int, with_positions: bool
) -> None:
    modeling = pytest.importorskip("transformers.models.perceiver.modeling_perceiver")
    resolution = [11, 8, 3][: len(shape)]
    grid = grid_positions(shape)
    theirs = modeling.build_linear_positions(shape).flatten(0, -2)
    assert torch.equal(grid, theirs)
    features = modeling.generate_fourier_features(
        theirs.expand(2, -1, -1), bands, resolution, concat_pos=with_positions
    )
    if not with_positions:
        features = features.expand(2, -1, -1)
    ours = fourier_features(grid, bands, resolution, with_positions=with_positions)
    assert torch.equal(ours.expand(2, -1, -1), features)


def test_each_number_by_its_formula() -> None:
    torch.manual_seed(0)
    positions, resolution, bands = torch.rand(2, 3, 2, dtype=torch.float64) * 2 - 1, (12, 5), 3
    found = fourier_features(positions, bands, resolution)
    for place in ((0, 1), (1, 2)):
        wanted = positions[place].tolist()
        for wave in (math.sin, math.cos):
            for axis, cells in enumerate(resolution):
                for band in range(bands):
                    frequency = 1 + band * (cells / 2 - 1) / (bands - 1)
                    wanted.append(wave(math.pi * frequency * float(positions[(*place, axis)])))
        torch.testing.assert_close(found[place], torch.tensor(wanted, dtype=torch.float64))


def test_the_highest_frequency_turns_half_a_period_from_cell_to_cell() -> None:
    cells = torch.arange(8, dtype=torch.float64) * 2 / 8 - 1  # 8 cells over two units
    found = fourier_features(cells[:, None], 2, [8], with_positions=False)
    torch.testing.assert_close(found[:, 3], torch.tensor([1.0, -1.0]).double().repeat(4))


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (0, 3)], ids=str)
def test_any_leading_axes(leading: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    positions = torch.rand(*leading, 2)
    found = fourier_features(positions, 3, (5, 7))
    assert found.shape == (*leading, 14)
    flat = [fourier_features(each, 3, (5, 7)) for each in positions.reshape(-1, 2)]
    assert torch.equal(found.reshape(-1, 14), torch.stack(flat) if flat else torch.zeros(0, 14))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(kind: torch.dtype) -> None:
    torch.manual_seed(2)
    positions = (torch.rand(5, 2) * 2 - 1).to(kind)
    found = fourier_features(positions, 6, (224, 224))
    assert torch.equal(found, fourier_features(positions.float(), 6, (224, 224)).to(kind))


def test_a_grid_is_in_the_order_of_a_flattened_array() -> None:
    rows = torch.arange(15.0).reshape(3, 5)
    down, across = grid_positions(rows.shape).unbind(-1)
    assert torch.equal(down, torch.tensor([-1.0, 0.0, 1.0]).repeat_interleave(5))
    assert torch.equal(across, torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0]).repeat(3))
    order = (5 * (down + 1) + 2 * (across + 1)).round().long()
    assert torch.equal(rows.flatten(), rows.flatten()[order])
    assert torch.equal(grid_positions([1, 2]), torch.tensor([[-1.0, -1.0], [-1.0, 1.0]]))


POSITIONS = torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0, 0.0]], 2, (4, 4)), "`positions` must be floats"),
        ((POSITIONS.long(), 2, (4, 4)), "see grid_positions"),
        ((torch.tensor(0.0), 2, (4,)), r"`positions` must be floats \[..., k\]"),
        ((torch.zeros(3, 0), 2, ()), r"got a float32 tensor of shape \[3, 0\]"),
        ((POSITIONS + 1.5, 2, (4, 4)), "from -1 to 1, got values from 1.5 to 1.5"),
        ((POSITIONS - 7, 2, (4, 4)), "scale them"),
        ((POSITIONS + torch.nan, 2, (4, 4)), "values from nan"),
        ((POSITIONS, 0, (4, 4)), "`bands` must be an integer of at least 1"),
        ((POSITIONS, 2.0, (4, 4)), "`bands` must be"),
        ((POSITIONS, 2, (4,)), "`resolution` must be 2 integers"),
        ((POSITIONS, 2, (4, 0)), "`resolution` must be an integer of at least 1, got 0"),
        ((POSITIONS, 2, 4), "`resolution` must be 2 integers"),
        ((POSITIONS, 2, "44"), "`resolution` must be 2 integers"),
    ],
)
def test_features_refuse(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(xa.ContractError, match=message):
        fourier_features(*arguments)


def test_what_is_rounded_past_the_end_is_no_mistake() -> None:
    fourier_features(torch.tensor([[1.0000001, -1.0078125]]), 2, (4, 4))
    with pytest.raises(xa.ContractError, match="`with_positions` must be True or False"):
        fourier_features(POSITIONS, 2, (4, 4), with_positions=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), (3, 0), (2.0,), 5, torch.tensor([2, 3]), (True, 2)], ids=str)
def test_grids_refuse(shape: Any) -> None:
    with pytest.raises(xa.ContractError, match="`shape` must be"):
        grid_positions(shape)


@pytest.mark.parametrize("s", [0, 1, 3, 5])
def test_learned_rows_are_added_from_the_first(s: int) -> None:
    torch.manual_seed(3)
    layer, stream = LearnedPositions(5, 4), torch.randn(2, s, 4)
    output = layer(stream)
    assert torch.equal(output, torch.stack([row + layer.weight[:s] for row in stream]))
    output.sum().backward()
    assert layer.weight.grad is not None
    assert torch.equal(layer.weight.grad, (torch.arange(5) < s)[:, None].expand(5, 4) * 2.0)


def test_learned_rows_begin_small() -> None:
    torch.manual_seed(4)
    layer = LearnedPositions(101, 103)
    assert [(name, x.shape) for name, x in layer.named_parameters()] == [("weight", (101, 103))]
    assert abs(float(layer.weight.detach().std()) - 0.02) < 1e-3
    assert "rows=101, width=103" in repr(layer)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_result_has_the_stream_s_dtype_rounded_once(kind: torch.dtype) -> None:
    torch.manual_seed(5)
    layer, stream = LearnedPositions(5, 4), torch.randn(2, 3, 4).to(kind)
    wanted = (stream.double() + layer.weight[:3].double()).to(kind)
    assert layer(stream).dtype == kind
    torch.testing.assert_close(layer(stream), wanted)


@pytest.mark.parametrize(
    "stream",
    [torch.zeros(2, 6, 4), torch.zeros(2, 3, 5), torch.zeros(3, 4), torch.zeros(2, 3, 4).long(),
     torch.zeros(2, 3, 4, device="meta"), [[[0.0] * 4]]],
    ids=["too many rows", "too wide", "no batch", "integers", "elsewhere", "a list"],
)  # fmt: skip
def test_learned_rows_refuse(stream: Any) -> None:
    with pytest.raises(xa.ContractError, match=r"`stream` must be .*\[b, s, 4\], s at most 5"):
        LearnedPositions(5, 4)(stream)


@pytest.mark.parametrize("sizes", [(0, 4), (5, 0), (5.0, 4), (True, 4)], ids=str)
def test_learned_rows_need_sizes(sizes: Any) -> None:
    with pytest.raises(xa.ContractError, match="must be an integer of at least 1"):
        LearnedPositions(*sizes)


def test_one_graph_for_every_size() -> None:
    torch.compiler.reset()
    torch.manual_seed(6)
    layer = LearnedPositions(11, 14)

    def place(stream: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return layer(stream) + fourier_features(positions, 3, (5, 7))

    compiled = torch.compile(place, fullgraph=True, dynamic=True, backend="aot_eager")
    for b, s in ((2, 5), (3, 7), (5, 11)):
        given = torch.randn(b, s, 14), torch.rand(b, s, 2)
        torch.testing.assert_close(compiled(*given), place(*given))
