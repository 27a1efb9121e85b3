"""Measure what a training step of a Perceiver needs in memory, beside one that projects per layer.

    python tools/perceiver_memory.py [--rows 50000] [--latent-layers 1] [--json]

Each is measured in a process of its own: the baseline is the resident memory once everything is
imported; input, weights, gradients and whatever the step keeps all count above it.

    raw         crossattention.nn.Perceiver: the input is normed and kept once, never projected
    per layer   each reading norms the input and projects keys and values of its own, with
                torch.nn.MultiheadAttention
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from crossattention.nn import EncoderBlock, FeedForward, Perceiver
from crossattention.nn.learned import LearnedQueries

KINDS = ("raw", "per layer")
LIMIT = 2 * 2**30  # bytes above the baseline


class PerLayer(nn.Module):
    """A Perceiver as it is often written: every reading norms and projects the input."""

    def __init__(
        self, width: int, heads: int, queries: int, reads: int, latent_layers: int
    ) -> None:
        super().__init__()
        self.queries = LearnedQueries(queries, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm": nn.LayerNorm(width),
                "input_norm": nn.LayerNorm(width),
                "attention": nn.MultiheadAttention(width, heads, batch_first=True),
                "feed_norm": nn.LayerNorm(width),
                "feed": FeedForward(width, 4 * width),
                "latent": nn.Sequential(
                    *(EncoderBlock(width, heads, 4 * width) for _ in range(latent_layers))
                ),
            })
            for _ in range(reads)
        )  # fmt: skip

    def forward(self, rows: Tensor) -> Tensor:
        """Read the input [b, M, c], and give the latents [b, n, c]."""
        stream: Tensor = self.queries(rows.shape[0])
        for layer in self.layers:
            memory = layer["input_norm"](rows)
            asked = layer["norm"](stream)
            stream = stream + layer["attention"](asked, memory, memory, need_weights=False)[0]
            stream = layer["latent"](stream + layer["feed"](layer["feed_norm"](stream)))
        return stream


def main() -> None:
    """Measure both kinds and write a table, or measure the one that is named."""
    options = _options()
    if options.kind:
        text = json.dumps(_measure(options))
    else:
        found = {kind: _in_a_process(kind, options) for kind in KINDS}
        whole = {"settings": _settings(options), "limit": LIMIT, **found}
        text = json.dumps(whole, indent=2) if options.json else _table(found, options)
    sys.stdout.write(text + "\n")


def _table(found: dict[str, dict[str, float]], options: argparse.Namespace) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in _settings(options).items())
    lines = [f"One training step: {sizes}", ""]
    lines += [f"{'':12}{'above baseline':>18}{'baseline':>14}{'seconds':>10}"]
    for kind, figures in found.items():
        above, baseline = figures["above"] / 2**30, figures["baseline"] / 2**30
        lines += [f"{kind:12}{above:>14.2f} GiB{baseline:>10.2f} GiB{figures['seconds']:>10.1f}"]
    within = "within" if found["raw"]["above"] <= LIMIT else "NOT within"
    return "\n".join([*lines, "", f"raw is {within} the limit of {LIMIT / 2**30:.0f} GiB"])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in (
        ("rows", 50_000), ("reads", 6), ("width", 512), ("heads", 8), ("queries", 128),
        ("latent-layers", 1),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learns-input", action="store_true", help="the input has a gradient, too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> dict[str, object]:
    return {name: value for name, value in vars(options).items() if name not in ("json", "kind")}


def _in_a_process(kind: str, options: argparse.Namespace) -> dict[str, float]:
    flags = [f"--kind={kind}"]
    for name, value in _settings(options).items():
        option = f"--{name.replace('_', '-')}"
        flags += [f"{option}={value}"] if not isinstance(value, bool) else [option] * value
    command = [sys.executable, __file__, *flags]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    measured: dict[str, float] = json.loads(text)
    return measured


def _measure(options: argparse.Namespace) -> dict[str, float]:
    baseline = _status("VmRSS")
    torch.manual_seed(0)
    width, heads, queries, reads, layers = (
        options.width, options.heads, options.queries, options.reads, options.latent_layers,
    )  # fmt: skip
    model = (
        Perceiver(
            width, heads, memory_width=width, queries=queries, reads=reads, latent_layers=layers
        )
        if options.kind == "raw"
        else PerLayer(width, heads, queries, reads, layers)
    )
    rows = torch.randn(1, options.rows, width, requires_grad=options.learns_input)
    start = time.perf_counter()
    model(rows).square().mean().backward()
    seconds = time.perf_counter() - start
    missing = [name for name, each in model.named_parameters() if each.grad is None]
    if missing:
        raise SystemExit(f"no gradient reached {missing}")
    peak = _status("VmHWM")
    return {"above": peak - baseline, "baseline": baseline, "peak": peak, "seconds": seconds}


def _status(name: str) -> int:
    """Read a figure of this process, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    main()
