"""Project a stream and split it by heads, checked on both sides of the projection.

    [b, t, c] -> [b, t, h·d] -> [b, h, t, d]

Projections may be replaced by any module. What a plain `nn.Linear` can take is known before it is
called; what another module returns is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from crossattention.argument import FLOATS, check_tensor, on_host
from crossattention.errors import ContractError, complaint, describe
from crossattention.nn.few_rows import mapped


def check_stream(name: str, stream: Tensor, width: int, reader: nn.Module) -> None:
    """Check a stream [b, t, c] for the module that reads it first.

    Args:
        name: of the stream, as the caller wrote it.
        stream, width: and the c that it must have.
        reader: a module with a `weight`, whose dtype and device the stream must have where it is
            an `nn.Linear` or an `nn.LayerNorm` that nothing watches; of others nothing is known.
    Raises:
        ContractError: not floats [b, t, c], or in another dtype or place than the weights.

    >>> check_stream("query", torch.ones(1, 3, 8), 8, nn.Linear(8, 8))
    """
    want, do = f"a float tensor [b, t, {width}]", "project it to the layer's width first"
    check_tensor(name, stream, FLOATS, want, do, rank=3)
    if stream.shape[-1] != width:
        raise ContractError(complaint(name, f"[b, t, {width}]", f"shape {list(stream.shape)}", do))
    check_kind(name, stream, reader)


def check_kind(name: str, stream: Tensor, reader: nn.Module) -> None:
    """Check that a stream has the dtype and device of a plain module's weights.

    >>> check_kind("rows", torch.ones(1, 3, 8), nn.Identity())
    """
    if type(reader) not in (nn.Linear, nn.LayerNorm) or reader._forward_pre_hooks:
        return
    if type(reader) is nn.Linear and stream.shape[-1:] != (reader.in_features,):
        want, given = (
            f"of width {reader.in_features}, as its weights",
            f"shape {list(stream.shape)}",
        )
        raise ContractError(complaint(name, want, given, "give the layer one width"))
    weight: object = reader._parameters.get("weight")  # a module looks attributes up slowly
    if weight is None:
        weight = reader.weight
    if not isinstance(weight, Tensor):  # a norm without a scale
        return
    if stream.dtype == weight.dtype and stream.device == weight.device:
        return
    kind, place = stream.dtype, stream.device
    mixed = torch.is_autocast_enabled(place.type) if place.type != "meta" else False
    narrow = type(reader) is nn.LayerNorm and weight.dtype == torch.float32 and kind.itemsize == 2
    if place != weight.device or not (kind == weight.dtype or mixed or narrow):
        weights = f"{str(weight.dtype).removeprefix('torch.')} on {weight.device}"
        given = f"{str(kind).removeprefix('torch.')} on {place}"
        do = "convert either with .to(...)"
        raise ContractError(complaint(name, f"{weights}, as the layer's weights", given, do))


def finish(merged: Tensor, projection: nn.Module, reads: Tensor | None) -> Tensor:
    """Map what was read, [b, t, h·e] -> [b, t, c], and add nothing to a row that read nothing.

    Args:
        merged: the heads' values, side by side.
        projection: the output projection.
        reads: bool `[b|1, h|1, t|1, 1]`, False where a query row may read nothing; None: all read.

    >>> finish(torch.ones(1, 2, 3), nn.Identity(), torch.ones(1, 1, 2, 1).bool()).sum().item()
    6.0
    """
    check_kind("output_projection", merged, projection)
    output = mapped(projection, merged)
    return output if reads is None else output.masked_fill(~reads.any(1), 0)  # -> [b|1, t|1, 1]


def check_widths(name: str, projection: nn.Module, read: int, written: int) -> None:
    """Check how wide a plain projection reads and writes.

    >>> check_widths("key_projection", nn.Linear(5, 8), 5, 8)
    """
    if type(projection) is not nn.Linear:
        return
    if (projection.in_features, projection.out_features) != (read, written):
        want = f"one that maps width {read} to {written}"
        given = f"width {projection.in_features} to {projection.out_features}"
        raise ContractError(complaint(name, want, given, "give it the layer's sizes"))


def map_rows(change: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Map a memory's rows [m, s, c] -> [m, g, s, d]; one without numbers spoils itself alone.

    Where nobody may read such a row its gradient is 0, but the weights' would be 0 · NaN; so the
    projection and the norm after it meet zeros, and what they made of them is marked NaN.

    >>> rows = torch.tensor([[[1.0], [torch.nan]]])
    >>> map_rows(lambda rows: nn.Linear(1, 1)(rows)[:, None], rows).isnan().flatten().tolist()
    [False, True]
    """
    broken = None
    if torch.is_grad_enabled():
        broken = ~rows.detach().isfinite().all(-1, keepdim=True)  # [m, s, c] -> [m, s, 1]
        if on_host(broken) and not bool(broken.any()):
            broken = None
    mapped = change(rows if broken is None else rows.masked_fill(broken, 0))
    return mapped if broken is None else mapped.masked_fill(broken[:, None], torch.nan)


def map_heads(
    name: str,
    projection: nn.Module,
    rows: Tensor,
    heads: int,
    width: int,
    norm: nn.Module | None = None,
) -> Tensor:
    """Map a memory's rows by a layer's projection, split by heads: [m, s, c] -> [m, g, s, d].

    Args:
        name, projection, rows: what is mapped, as `map_rows` does.
        heads, width: g and d.
        norm: of each head's rows, after the projection.

    >>> map_heads("key_projection", nn.Linear(5, 8), torch.ones(1, 3, 5), heads=2, width=4).shape
    torch.Size([1, 2, 3, 4])
    """

    def change(x: Tensor) -> Tensor:
        split = heads_of(name, projection(x), heads, width)
        normed: Tensor = split if norm is None else norm(split)
        return normed

    return map_rows(change, rows)


def heads_of(name: str, projected: Tensor, heads: int, width: int) -> Tensor:
    """Split what a projection returned by heads: [b, t, h·d] -> [b, h, t, d].

    Args:
        name: of the projection.
        projected, heads, width: `[b, t, h·d]`, h and d.

    >>> heads_of("query_projection", torch.ones(1, 3, 8), heads=2, width=4).shape
    torch.Size([1, 2, 3, 4])
    """
    if not isinstance(projected, Tensor) or projected.dim() != 3 or (
        projected.shape[-1] != heads * width
    ):  # fmt: skip
        want = f"a module that returns [b, t, {heads * width}], {heads} heads of width {width}"
        do = "give it the layer's sizes"
        raise ContractError(complaint(name, want, describe(projected), do))
    b, t, _ = projected.shape
    return projected.reshape(b, t, heads, width).transpose(1, 2)
