"""Ask the library for a case: by function or by layer, in the case's mode; and say what is right.

A kernel that is named runs or refuses in words. Where `fused` or `native` refuses, its reason must
be one of those it is known for, and the case is run with "auto".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

import crossattention as xa
from laws.definition import Defined, define
from laws.given import Given
from laws.table import Case

REFUSALS = (
    "no heads of width 0", "no soft cap", "one dtype", "one head width", "no dropout",
    "bias has no gradient", "log-sum-exp has no gradient", "on the CPU only",
    "it has no gradient", "reads float32, bfloat16 and float16", "outside torch.func",
)  # fmt: skip


@contextmanager
def in_mode(case: Case, device: torch.device) -> Iterator[None]:
    """Enter the mode of a case."""
    if case.mode == "no_grad":
        with torch.no_grad():
            yield
    elif case.mode == "inference_mode":
        with torch.inference_mode():
            yield
    elif case.mode == "autocast":
        with torch.autocast(device.type, torch.bfloat16):
            yield
    else:
        yield


def ask(case: Case, given: Given) -> Tensor:
    """Read: [b, h, t, e] from a function, [b, t, c] from a layer."""
    with in_mode(case, given.visible.device):
        try:
            return _read(case, given)
        except xa.NoKernelError as error:
            assert case.kernel in ("fused", "native"), error
            assert any(reason in str(error) for reason in REFUSALS), error
            return _read(case.but(kernel="auto"), given)


def ask_lse(case: Case, given: Given) -> tuple[Tensor, Tensor]:
    """Read by function, with the log-sum-exp."""
    query, key, value = (given.leaves[name] for name in ("query", "key", "value"))
    options = {**given.options, "owner": given.owner, "softcap": given.softcap,
               "lengths": given.lengths}  # fmt: skip
    with in_mode(case, given.visible.device):
        try:
            return xa.attend_with_lse(query, key, value, **options, kernel=case.kernel)
        except xa.NoKernelError as error:
            assert case.kernel in ("fused", "native"), error
            assert any(reason in str(error) for reason in REFUSALS), error
            return xa.attend_with_lse(query, key, value, **options)


def right(given: Given) -> Defined:
    """What a function must give."""
    leaves = given.leaves
    return define(
        leaves["query"], leaves["key"], leaves["value"], owner=given.owner,
        visible=given.visible, bias=given.bias, softcap=given.softcap,
    )  # fmt: skip


def right_layer(given: Given, rows: Tensor | None = None) -> tuple[Tensor, Defined]:
    """What a layer must give, from its weights and its equation: [b, t, c], and its reading."""
    assert given.layer is not None
    made, leaves, sizes = given.layer, given.leaves, given.sizes
    weight = {name: each.double() for name, each in made.named_parameters()}

    def projected(stream: Tensor, name: str, heads: int, width: int) -> Tensor:
        flat = F.linear(
            stream.double(), weight[f"{name}_projection.weight"], weight[f"{name}_projection.bias"]
        )
        return flat.view(*stream.shape[:2], heads, width).transpose(1, 2)  # -> [b, heads, t, width]

    rows = leaves["rows"] if rows is None else rows
    query = projected(leaves["query"], "query", sizes.h, sizes.d)
    key = projected(rows, "key", sizes.g, sizes.d)
    value = projected(rows, "value", sizes.g, sizes.e)
    found = define(
        query, key, value, owner=given.owner, visible=given.visible, bias=given.bias,
        softcap=given.softcap,
    )  # fmt: skip
    together = found.value.transpose(1, 2).flatten(2)  # [b, h, t, e] -> [b, t, h·e]
    output = F.linear(
        together, weight["output_projection.weight"], weight["output_projection.bias"]
    )
    reads = (found.lse > -torch.inf).any(1)[..., None]  # [b, h, t] -> [b, t, 1]
    return torch.where(reads, output, 0), found


def remember(case: Case, given: Given) -> xa.Memory:
    """Remember a case's rows in its form, and let its owners read them."""
    assert given.layer is not None
    rows = given.leaves["rows"]
    memory = given.layer.remember(rows, given.lengths, form=case.form)
    if case.owner != "own":
        index = torch.tensor(given.owner, dtype=torch.int64, device=rows.device)
        memory = memory.select(index)
    return memory.to(torch.float16) if case.dtype == "half memory" else memory


def layer_masks(given: Given) -> dict[str, Tensor]:
    """The masks of a case as a layer takes them: causal order as a boolean."""
    masks = {name: each for name, each in given.options.items() if name != "causal"}
    if "causal" in given.options:
        masks["visible"] = given.visible
    return masks


def _read(case: Case, given: Given) -> Tensor:
    if given.layer is None:
        query, key, value = (given.leaves[name] for name in ("query", "key", "value"))
        return xa.attend(
            query, key, value, **given.options, lengths=given.lengths, owner=given.owner,
            softcap=given.softcap, kernel=case.kernel,
        )  # fmt: skip
    layer, query, masks = given.layer, given.leaves["query"], layer_masks(given)
    layer.train(case.mode == "train").kernel = case.kernel
    if case.kept == "fresh" and case.form == "projected" and given.lengths is None:
        return layer(query, given.leaves["rows"], **masks)
    memory = remember(case, given)
    if case.kept == "remembered":  # another memory of the same shape is made and read between
        other = layer.remember(given.leaves["rows"] + 1, given.lengths, form=case.form)
        layer(query.new_ones(other.sequences, *query.shape[1:]), other)
    return layer(query, memory, **masks)
