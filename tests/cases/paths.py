"""Every path that can compute a case: functions, and layers over each form of a memory.

A case that starts from query, key and value is read by a layer as well, whose projections are the
identity: heads laid side by side are the stream, and a memory's keys and values are its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import crossattention as xa
from cases.book import Case
from cases.judge import offset_of, visible_cells
from crossattention.nn import NullRow

KERNELS = ("reference", "matmul", "fused", "auto")
FORMS = ("attend", "attend_with_lse", "headless", "projected", "raw", "fresh")
LAYERS = ("projected", "raw", "fresh")
WEIGHTS = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")


@dataclass(frozen=True)
class Path:
    """One way of computing: a form, a kernel, and settings that must not matter."""

    form: str
    kernel: str = "auto"
    maps: bool = False
    grad: bool = True
    mode: str = "eval"
    dropout: float = 0.0
    queries_per_call: int | None = None

    def __str__(self) -> str:
        return f"{self.form}-{self.kernel}"


def expresses(form: str, case: Case) -> bool:
    """Whether a form can express a case at all."""
    given = case.tensors(torch.float64)
    unprojected = "query_rows" in given
    if form == "headless":
        flat = not unprojected and given["query"].shape[1] == given["key"].shape[1] == 1
        return flat and not given.get("zero_slot")
    if form == "attend":
        return not given.get("zero_slot")
    if form == "fresh":
        return "owner" not in given and "value_memory" not in given and expresses("raw", case)
    return form == "attend_with_lse" or unprojected or given["query"].shape[-1] > 0


def read(case: Case, dtype: torch.dtype, path: Path) -> dict[str, Any]:
    """Compute a case: output, weights, lse and gradients, as far as the path gives them."""
    given = case.tensors(dtype)
    if "routing" in given:
        given["visible"] = routed(given["routing"])
    wanted = offered(path, case.expect.get("grads", {}))
    graded = path.grad and case.tolerance(dtype) and dtype.itemsize >= 4
    return compute(given, path, wanted if graded else [])


def compute(given: dict[str, Any], path: Path, wanted: Sequence[str] = ()) -> dict[str, Any]:
    """Compute from tensors; `wanted` names those whose gradients are asked for."""
    given = {n: x.detach() if isinstance(x, Tensor) else x for n, x in given.items()}
    for name in wanted:
        given[name].requires_grad_()
    with torch.set_grad_enabled(bool(wanted)):
        reader = _by_layer if path.form in LAYERS else _by_function
        found, leaves = reader(given, path)
    if wanted:
        upstream = given.get("upstream", torch.ones_like(found["output"]))
        gradients = torch.autograd.grad(found["output"], [leaves[n] for n in wanted], upstream)
        shaped = zip(wanted, gradients, strict=True)
        found["grads"] = {name: grad.reshape(given[name].shape) for name, grad in shaped}
    shape = found.pop("shape")
    return found | {"see": visible_cells(given, shape), "owner": given.get("owner")}


def routed(routing: dict[str, Any]) -> Tensor:
    """Say which blocks a row may read, from how many have begun: the latest, or all so far."""
    count = torch.tensor(routing["count"])[:, None, :, None]
    block = torch.tensor(routing["block_of_key"])[:, None, None, :]
    return block == count if routing["mode"] == "latest" else block <= count


def masks(given: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments of `attend` that hide or change scores."""
    found = {name: given[name] for name in ("visible", "bias", "lengths", "owner", "softcap")
             if name in given}  # fmt: skip
    if "hidden" in given:
        found["visible"] = ~given["hidden"]
    if "causal" in given or "query_offset" in given:
        corner = given.get("causal")
        found["causal"] = corner.replace("-", "_") if isinstance(corner, str) else (
            given.get("query_offset", corner)
        )  # fmt: skip
    if "scale" in given:
        found["scale"] = given["scale"]
    return found


def offered(path: Path, names: Iterable[str]) -> list[str]:
    """Keep the gradients that a path has: fused lacks a bias's, and any beside an lse."""
    if path.kernel != "fused":
        return list(names)
    return [n for n in names if n != "bias" and path.form != "attend_with_lse"]


def _by_function(given: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    query, key, value = streams(given)
    options = masks(given)
    shape = (*query.shape[:3], key.shape[2])
    found: dict[str, Any] = {"shape": shape}
    weights = xa.attention_weights(query, key, **options)
    dropout = path.dropout if path.mode == "train" else 0.0
    pieces = query.split(path.queries_per_call or max(query.shape[2], 1), 2)
    outputs, lses = [], []
    for piece in pieces:
        if path.form == "headless":
            flat = (x[:, 0] for x in (piece, key, value))
            outputs.append(xa.attend(*flat, **options, kernel=path.kernel)[:, None])
        elif path.form == "attend":
            options["dropout"] = dropout
            outputs.append(xa.attend(piece, key, value, **options, kernel=path.kernel))
        else:
            output, lse = xa.attend_with_lse(piece, key, value, **options, kernel=path.kernel)
            if given.get("zero_slot"):
                row, scale = null_row(key, value), given["scale"]
                weights = weights * row.leaves(piece, lse, scale, None)[..., None]
                output, lse = row(piece, (output, lse), scale, None)
            outputs.append(output)
            lses.append(lse)
    found |= {"weights": weights, "output": _mixed(given, torch.cat(outputs, 2), weights)}
    if lses:
        found["lse"] = torch.cat(lses, 2)
    return found, given


def _mixed(given: dict[str, Any], output: Tensor, weights: Tensor) -> Tensor:
    if "w_o" not in given:
        return output
    mixed = torch.einsum("bhte,ohe->bto", output, given["w_o"]) + given.get("b_o", 0)
    return mixed * (weights > 0).any(-1).any(1)[..., None]


def streams(given: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Give query, key and value, projected by hand where the case has rows."""
    if "query" in given:
        return given["query"], given["key"], given["value"]
    memory = given["memory"]
    triples = zip((given["query_rows"], memory, given.get("value_memory", memory)), "qkv",
                  strict=True)  # fmt: skip
    query, key, value = (
        torch.einsum("bnc,hdc->bhnd", rows, given[f"w_{x}"])
        + given.get(f"b_{x}", torch.zeros(1, 1, dtype=rows.dtype))[None, :, None]
        for rows, x in triples
    )
    return query, key, value


def null_row(key: Tensor, value: Tensor) -> NullRow:
    """Make a null row of score 0 and value 0."""
    row = NullRow(key.shape[1], key.shape[-1], value.shape[-1]).to(key.dtype)
    for parameter in row.parameters():
        nn.init.zeros_(parameter)
    return row


def _by_layer(given: dict[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    layer, query, rows, value_rows = build(given, path)
    options = masks(given)
    memories, s, t = rows.shape[0], rows.shape[1], query.shape[1]
    visible = options.get("visible", torch.ones(1, 1, 1, 1, dtype=torch.bool))
    offset = offset_of(given, t, s)
    if offset is not None:
        visible = visible & (torch.arange(s) <= torch.arange(t)[:, None] + offset)
    lengths = options.get("lengths")
    memory: Tensor | xa.Memory = rows
    if path.form != "fresh":
        memory = layer.remember(rows, lengths, value_rows=value_rows, form=path.form)
        if "owner" in options:
            memory = memory.select(torch.as_tensor(options["owner"], dtype=torch.long))
    elif lengths is not None:
        visible = visible & (torch.arange(s) < torch.as_tensor(lengths).view(memories, 1, 1, 1))
    arguments: dict[str, Any] = {"bias": options.get("bias")}
    if not bool(visible.all()) or "visible" in options:
        arguments["visible"] = visible
    found: dict[str, Any] = {"shape": (query.shape[0], layer.sizes.heads, t, s)}
    with torch.no_grad():
        before = layer.weights(query, memory, **arguments) if path.maps else None
    pieces = query.split(path.queries_per_call or max(t, 1), 1)
    output = torch.cat([layer(piece, memory, **arguments) for piece in pieces], 1)
    with torch.no_grad():
        found["weights"] = layer.weights(query, memory, **arguments)
    assert before is None or torch.equal(before, found["weights"])
    if "w_o" not in given:
        output = output.unflatten(2, (layer.sizes.heads, -1)).transpose(1, 2)  # [b, h, t, e]
    parameters = {f"{'w' if kind == 'weight' else 'b'}_{name[0]}": parameter
                  for name, kind, parameter in _parameters(layer)}  # fmt: skip
    return found | {"output": output}, given | parameters


def _parameters(layer: xa.CrossAttention) -> list[tuple[str, str, Tensor]]:
    found = []
    for name in ("query", "key", "value", "output"):
        for kind, parameter in layer.get_submodule(f"{name}_projection").named_parameters():
            found.append((name, kind, parameter))
    return found


def build(
    given: dict[str, Any], path: Path
) -> tuple[xa.CrossAttention, Tensor, Tensor, Tensor | None]:
    """Build a layer with a case's weights, or the identity's, and the rows that it reads."""
    dtype = given.get("query", given.get("query_rows")).dtype
    if "query" in given:
        query, key, value = (given[n].transpose(1, 2).flatten(2) for n in ("query", "key", "value"))
        (_, h, _, d), (_, g, _, e) = given["query"].shape, given["value"].shape
        widths = (key.shape[2], value.shape[2])
        eye = [torch.eye(n, dtype=dtype) for n in (h * d, g * d, g * e)]
        if path.form == "fresh":  # one tensor holds keys and values side by side
            key, value = torch.cat([key, value], 2), None
            eye = [eye[0], *torch.eye(sum(widths), dtype=dtype).split([g * d, g * e])]
            widths = (sum(widths), sum(widths))
        weights = {f"w_{x}": weight for x, weight in zip("qkv", eye, strict=True)}
    else:
        query, key, value = given["query_rows"], given["memory"], given.get("value_memory")
        (h, d, _), (g, e, _) = given["w_q"].shape, given["w_v"].shape
        widths = (key.shape[2], (key if value is None else value).shape[2])
        weights = {n: given[n].flatten(0, 1) for n in WEIGHTS[:3]}
    layer = xa.CrossAttention(query.shape[2], h, memory_width=widths, key_width=d, value_width=e,
                              memory_heads=g, dropout=path.dropout)  # fmt: skip
    for name in ("query", "key", "value"):
        bias = given.get(f"b_{name[0]}")
        linear = linear_of(weights[f"w_{name[0]}"], None if bias is None else bias.flatten())
        setattr(layer, f"{name}_projection", linear)
    layer.output_projection = nn.Identity()
    if "w_o" in given:
        layer.output_projection = linear_of(given["w_o"].flatten(1), given.get("b_o"))
    layer.scale, layer.softcap = given.get("scale", layer.scale), given.get("softcap")
    layer.kernel = path.kernel
    if given.get("zero_slot"):
        layer.null_row = null_row(given["key"], given["value"])
    return layer.train(path.mode == "train"), query, key, value


def linear_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Make a linear module of given weights, [out, in] and [out]."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, dtype=weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear


def count_calls(layer: xa.CrossAttention, names: Iterable[str]) -> dict[str, int]:
    """Count how often submodules are called from now on."""
    calls: dict[str, int] = {}

    def count(called: str) -> None:
        calls[called] = calls.get(called, 0) + 1

    for name in names:
        layer.get_submodule(name).register_forward_hook(lambda *_, name=name: count(name))
    return calls
