"""Whatever is asked, each kernel and form that accepts it gives what the definition gives.

`make fuzz` looks for new examples for an hour; the normal run repeats the same ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import Tensor, nn

import crossattention as xa
from crossattention.attention.choose import KERNELS
from crossattention.nn import NullRow
from fuzz.problems import DTYPES, Shape, bias_of, lay, masks, shapes, unread

FAST = [kernel.name for kernel in KERNELS if kernel.name != "reference"]
# Seconds to look for new examples; 0 looks once.
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
# A result in half precision may differ by a rounding or two of its own dtype.
TOLERANCE = {
    torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 8e-3, torch.bfloat16: 6e-2,
}  # fmt: skip


def look(search: Callable[[], None]) -> None:
    """Search once, or again and again until the time is over; each of the two tests has half."""
    end = time.monotonic() + SECONDS / 2
    search()
    while time.monotonic() < end:
        search()


def examples(count: int) -> settings:
    """How many examples one search looks at."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, suppress_health_check=slow, database=None)


def close(found: Tensor, wanted: Tensor, dtype: torch.dtype, what: str) -> None:
    """Compare finite results; where the definition is not finite, so must the other be."""
    assert found.dtype == wanted.dtype, what
    tolerance = TOLERANCE[dtype]
    finite = wanted.detach().double()[wanted.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    torch.testing.assert_close(
        found, wanted, atol=tolerance * scale, rtol=tolerance, equal_nan=True,
        msg=lambda text: f"{what}: {text}",
    )  # fmt: skip


def gradients(outputs: Sequence[Tensor], leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """Pull one random vector back through all outputs."""
    generator = torch.Generator().manual_seed(7)
    pulled = [
        torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
        for output in outputs
    ]
    used = [leaf for leaf in leaves.values() if leaf.requires_grad]
    differ = [at for at, output in enumerate(outputs) if output.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(used)
    if used and differ:  # a memory of no rows depends on nothing
        found = torch.autograd.grad(
            [outputs[at] for at in differ],
            used,
            [pulled[at] for at in differ],
            retain_graph=True,
            allow_unused=True,
        )
    names = [name for name, leaf in leaves.items() if leaf.requires_grad]
    return {
        name: torch.zeros_like(leaf) if each is None else each
        for name, leaf, each in zip(names, used, found, strict=True)
    }


def inputs(shape: Shape) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Draw the numbers of a shape: leaves by name, and the other arguments of `attend`."""
    torch.manual_seed(shape.seed)
    b, h, t, d, m, g, s, e = (shape.sizes[name] for name in "bhtdmgse")
    options, bias = masks(shape), bias_of(shape)
    hidden = unread(shape, options, bias)[:, None, :, None]
    stream, memory = DTYPES[shape.dtypes]
    # What nobody reads differs by memory, so that keys and values are filled before they are laid.
    laid = "plain" if shape.layout == "expanded" and bool(hidden.any()) else shape.layout
    key, value = (
        torch.randn(m, g, s, width).masked_fill(hidden, shape.hidden).to(memory) for width in (d, e)
    )
    leaves = {
        "query": lay(torch.randn(b, h, t, d).to(stream), shape.layout),
        "key": lay(key, laid),
        "value": lay(value, laid),
    }
    if bias is not None:
        leaves["bias"] = bias.to(stream)
    for name in shape.wants & set(leaves):
        leaves[name] = leaves[name].detach().requires_grad_()
    return leaves, options


def test_every_kernel_that_accepts_equals_the_definition() -> None:
    look(_kernels_agree)


def test_every_form_and_kernel_of_a_layer_equals_the_definition() -> None:
    look(_forms_agree)


@examples(900)
@given(shape=shapes())
def _kernels_agree(shape: Shape) -> None:
    leaves, options = inputs(shape)
    wanted = xa.attend(**leaves, **options, kernel="reference")
    right = gradients([wanted], leaves)
    assert all(bool(each.isfinite().all()) for each in (wanted, *right.values()))
    lowest = min(DTYPES[shape.dtypes], key=lambda dtype: 1 / torch.finfo(dtype).eps)
    with_lse = xa.attend_with_lse(**leaves, **options, kernel="reference")
    shown = xa.attention_weights(leaves["query"], leaves["key"], **_but_value(leaves), **options)
    assert bool(((shown.sum(-1) - 1).abs().minimum(shown.sum(-1).abs()) < 1e-4).all())
    for kernel in (*FAST, "auto"):
        refusals = _refusals(leaves, options, kernel)
        if refusals:
            with pytest.raises(xa.NoKernelError, match=refusals[0].split(":")[0]):
                xa.attend(**leaves, **options, kernel=kernel)
            continue
        found = xa.attend(**leaves, **options, kernel=kernel)
        close(found, wanted, lowest, kernel)
        for name, each in gradients([found], leaves).items():
            close(each, right[name], lowest, f"{kernel}, gradient of {name}")
        try:
            both = xa.attend_with_lse(**leaves, **options, kernel=kernel)
        except xa.NoKernelError:
            continue
        close(both[0], with_lse[0], lowest, f"{kernel} with lse")
        close(both[1], with_lse[1], lowest, f"{kernel}, lse")
        lse = [read.masked_fill(read == -torch.inf, 0) for read in (both[1], with_lse[1])]
        pulled = [gradients([both[0], lse[0]], leaves), gradients([with_lse[0], lse[1]], leaves)]
        for name, each in pulled[0].items():
            close(each, pulled[1][name], lowest, f"{kernel}, gradient of {name} through lse")


def _but_value(leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: each for name, each in leaves.items() if name == "bias"}


def _refusals(leaves: dict[str, Tensor], options: dict[str, object], kernel: str) -> list[str]:
    explained = xa.explain(**leaves, **options)
    return [reason for each in explained.kernels if each.name == kernel for reason in each.refusals]


def build(shape: Shape) -> xa.CrossAttention:
    """Build a layer of a shape, in float64, with a null row in one of two."""
    sizes = shape.sizes
    layer = xa.CrossAttention(
        7, sizes["h"], memory_width=5, key_width=sizes["d"], value_width=sizes["e"],
        memory_heads=sizes["g"], bias=shape.seed % 3 > 0,
    )  # fmt: skip
    if shape.seed % 2:
        layer.null_row = NullRow(sizes["g"], sizes["d"], sizes["e"])
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    layer.softcap = shape.softcap
    layer.scale = layer.scale if shape.scale is None else shape.scale
    return layer.double().eval()


@examples(300)
@given(shape=shapes(layer=True))
def _forms_agree(shape: Shape) -> None:
    torch.manual_seed(shape.seed)
    layer, sizes = build(shape), shape.sizes
    options, bias = masks(shape), bias_of(shape)
    taken = {name: options[name] for name in ("visible",) if name in options}
    hidden = unread(shape, options, bias)
    rows = torch.randn(sizes["m"], sizes["s"], 5, dtype=torch.float64)
    laid = "plain" if shape.layout == "expanded" else shape.layout
    dirty = lay(rows.masked_fill(hidden[..., None], shape.hidden), laid).requires_grad_()
    clean = lay(rows.masked_fill(hidden[..., None], 0), laid).requires_grad_()
    query = lay(torch.randn(sizes["b"], sizes["t"], 7).double(), shape.layout).requires_grad_()
    if bias is not None:
        taken["bias"] = bias.double()
    layer.kernel = "reference"

    def read(rows: Tensor, form: str) -> tuple[Tensor, dict[str, Tensor]]:
        memory = layer.remember(rows, shape.lengths, form=form)
        if shape.owner is not None:
            memory = memory.select(torch.tensor(shape.owner, dtype=torch.long))
        output = layer(query, memory, **taken)
        return output, gradients(
            [output], {"query": query, "rows": rows, **dict(layer.named_parameters())}
        )

    wanted, right = read(clean, "projected")
    for form in ("projected", "raw"):
        for kernel in ("reference", "matmul", "auto"):
            layer.kernel = kernel
            found, pulled = read(dirty, form)
            close(found, wanted, torch.float64, f"{form}, {kernel}")
            for name, each in pulled.items():
                close(each, right[name], torch.float64, f"{form}, {kernel}, gradient of {name}")
