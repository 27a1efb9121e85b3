"""Pooling: one constant query reads image patches, forward, and forward with backward.

`AttentionPool` against `nn.MultiheadAttention(need_weights=False)` with the same weights, and the
whole head of SigLIP against the Hugging Face and timm heads with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

import crossattention as xa
from benchmarks.run import Run
from benchmarks.side_by_side import Call, compare
from crossattention import nn as xnn

SIZES = {768: (12, 3072), 1152: (16, 4304)}  # width: heads, feed-forward
ROWS, BATCHES = (196, 729, 1024), (1, 8, 32)
PASSES = ("forward", "forward + backward")
Module = Callable[[Tensor], Tensor]


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Measure every width, number of rows, batch and pass."""
    for width in SIZES:
        pools, heads = _pools(width), _heads(run, width)
        for count in ROWS:
            for batch in BATCHES:
                if run.quick and (width, count, batch) != (768, 196, 1):
                    continue
                patches = torch.randn(batch, count, width)
                for kind in PASSES:
                    for what, modules in (("pool", pools), ("head", heads)):
                        if what == "head" and (len(heads) == 1 or batch == 32):
                            continue  # without a peer, or as at batch 8
                        timing = compare(
                            _lanes(modules, patches, kind), run.seconds(0.6), least=2,
                        )  # fmt: skip
                        yield {
                            "case": f"{what}, {kind}", "rows": count, "width": width, "batch": batch
                        } | timing.row()  # fmt: skip


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Give the ratios over `nn.MultiheadAttention`, for 729 rows of 1,152 numbers, or the rows."""
    found: dict[str, object] = {}
    for row in rows:
        quoted = (row["rows"], row["width"]) == (729, 1152) and row["batch"] in (1, 8)
        if quoted or len(rows) <= 4:
            ratios = row["ratio"]
            assert isinstance(ratios, dict)
            for peer, ratio in ratios.items():
                found[f"{row['case']}_batch_{row['batch']}_against_{peer}"] = ratio
    return found


def _pools(width: int) -> dict[str, Module]:
    heads, _ = SIZES[width]
    theirs = nn.MultiheadAttention(width, heads, batch_first=True).eval()
    ours = xa.AttentionPool(width, heads).eval()
    ours.attention = xa.from_torch(theirs)
    probe = ours.get_parameter("queries.weight")

    def read(patches: Tensor) -> Tensor:
        query = probe.expand(patches.shape[0], -1, -1)
        output: Tensor = theirs(query, patches, patches, need_weights=False)[0]
        return output

    return {"ours": ours, "torch": read}


def _heads(run: Run, width: int) -> dict[str, Module]:
    heads, hidden = SIZES[width]
    ours = xnn.siglip_pooling(width, heads, hidden).eval()
    found: dict[str, Module] = {"ours": ours}
    hugging_face = run.peer("transformers.models.siglip.modeling_siglip")
    if hugging_face:
        config = hugging_face.SiglipVisionConfig(
            hidden_size=width, num_attention_heads=heads, intermediate_size=hidden
        )
        theirs = hugging_face.SiglipMultiheadAttentionPoolingHead(config).eval()
        _copy_to_hugging_face(ours, theirs)
        found["Hugging Face"] = lambda patches: theirs(patches)[:, None]  # [b, c] -> [b, 1, c]
    timm = run.peer("timm.layers")
    if timm:
        latent = timm.AttentionPoolLatent(width, num_heads=heads, mlp_ratio=hidden / width)
        latent.mlp.act = nn.GELU(approximate="tanh")
        _copy_to_timm(ours, latent.eval())
        found["timm"] = lambda patches: latent(patches)[:, None]
    return found


def _lanes(modules: dict[str, Module], patches: Tensor, kind: str) -> dict[str, Call]:
    step = _forward if kind == "forward" else _backward
    return {name: partial(step, module, patches) for name, module in modules.items()}


@torch.inference_mode()
def _forward(module: Module, patches: Tensor) -> Tensor:
    return module(patches)


def _backward(module: Module, patches: Tensor) -> tuple[Tensor, Tensor]:
    leaf = patches.detach().requires_grad_()
    output = module(leaf)
    output.sum().backward()
    assert leaf.grad is not None
    return output.detach(), leaf.grad


@torch.no_grad()
def _copy_to_hugging_face(ours: xnn.PoolingHead, theirs: nn.Module) -> None:
    weights, biases = _stacked(ours)
    attention = ours.pool.attention
    theirs.load_state_dict({
        "probe": ours.pool.get_parameter("queries.weight")[None],
        "attention.in_proj_weight": weights,
        "attention.in_proj_bias": biases,
        "attention.out_proj.weight": attention.get_parameter("output_projection.weight"),
        "attention.out_proj.bias": attention.get_parameter("output_projection.bias"),
        **_thought(ours, "layernorm"),
    })  # fmt: skip


@torch.no_grad()
def _copy_to_timm(ours: xnn.PoolingHead, theirs: nn.Module) -> None:
    weights, biases = _stacked(ours)
    c = weights.shape[1]
    attention = ours.pool.attention
    theirs.load_state_dict({
        "latent": ours.pool.get_parameter("queries.weight")[None],
        "q.weight": weights[:c], "q.bias": biases[:c],
        "kv.weight": weights[c:], "kv.bias": biases[c:],
        "proj.weight": attention.get_parameter("output_projection.weight"),
        "proj.bias": attention.get_parameter("output_projection.bias"),
        **_thought(ours, "norm"),
    })  # fmt: skip


def _stacked(ours: xnn.PoolingHead) -> tuple[Tensor, Tensor]:
    names = ("query_projection", "key_projection", "value_projection")
    of = ours.pool.attention.get_parameter
    weights = torch.cat([of(f"{name}.weight") for name in names])  # 3 of [c, c] -> [3c, c]
    return weights, torch.cat([of(f"{name}.bias") for name in names])


def _thought(ours: xnn.PoolingHead, norm: str) -> dict[str, Tensor]:
    """Give the norm and the feed-forward part under the names that both peers use."""
    names = {"norm": norm, "feed_forward.expand": "mlp.fc1", "feed_forward.contract": "mlp.fc2"}
    return {
        f"{theirs}.{each}": ours.get_parameter(f"{mine}.{each}")
        for mine, theirs in names.items()
        for each in ("weight", "bias")
    }
