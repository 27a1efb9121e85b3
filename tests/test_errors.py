"""Every bad input at every public door: one exception type, and one sentence that helps.

*`name` must be X, got Y; do Z.* The sentence names the argument, says what was given with its shape
or value, and what to do. Nothing reaches the depths of torch, and nothing is accepted and ignored.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import crossattention as xa
from crossattention.kernels.contract import Cost, Problem, Reading
from crossattention.nn import Cache, CrossBlock, DecoderBlock, EncoderBlock, FeedForward, NullRow
from crossattention.nn.explain import Reads, explain_forms
from crossattention.seq2seq import Config, EncoderDecoder
from crossattention.seq2seq.options import BeamOptions, SampleOptions
from crossattention.seq2seq.search import beam, greedy, sample

FORM = re.compile(r"(`[^`]+`(?: and `[^`]+`)*) must be (.+), got (.+); (.+)\.", re.DOTALL)
Bad = tuple[str, str, str, Callable[[], object]]  # the door, the argument, what was given, a call
NAN, INF = float("nan"), float("inf")

QUERY, KEY = torch.rand(2, 4, 5, 3), torch.rand(2, 4, 7, 3)
ROWS, STREAM = torch.rand(2, 5, 6), torch.rand(2, 3, 8)
LAYER = xa.CrossAttention(8, 2, memory_width=6).eval()
SELF = xa.SelfAttention(8, 2).eval()
SMALL = {
    "vocabulary": 11,
    "width": 8,
    "heads": 2,
    "feed_forward": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_length": 30,
}
MODEL = EncoderDecoder(Config(**SMALL)).eval()
SOURCE, LENGTHS = torch.tensor([[3, 4, 5, 2], [3, 2, 0, 0]]), [4, 2]


class Foreign:
    """A kernel of the caller's own, with something amiss."""

    name = "foreign"

    def __init__(self, result: object = None) -> None:
        self.result = result

    def refuses(self, problem: Problem) -> list[str]:
        return []

    def cost(self, problem: Problem) -> Cost:
        return Cost(1, 1)

    def run(self, problem: Problem) -> Any:
        return self.result


class Nameless(Foreign):
    name = None  # type: ignore[assignment]


def no_tensors(like: Tensor) -> dict[str, tuple[object, str]]:
    """What is not a dense tensor of floats, and how a message shows it."""
    shape = re.escape(str(list(like.shape)))
    jagged = torch.nested.nested_tensor([like[0], like[0]], layout=torch.jagged)
    with warnings.catch_warnings(action="ignore"):  # torch's own, of a prototype
        nested = torch.nested.nested_tensor([like[0], like[0, :1]])
    return {
        "a list": ([[1.0]], r"a list of 1: \[\[1.0\]\]"),
        "an array": (like.numpy(), r"a ndarray of shape \("),
        "a word": ("x", "'x'"),
        "integers": (like.long(), f"a int64 tensor of shape {shape}"),
        "bools": (like > 0, f"a bool tensor of shape {shape}"),
        "complex": (like.to(torch.complex64), f"a complex64 tensor of shape {shape}"),
        "float8": (like.to(torch.float8_e4m3fn), f"a float8_e4m3fn tensor of shape {shape}"),
        "sparse": (like.to_sparse(), f"a sparse_coo float32 tensor of shape {shape}"),
        "jagged": (jagged, "a nested float32 tensor"),
        "nested": (nested, "a nested float32 tensor"),
        "rank 0": (torch.tensor(1.0), r"\[\]"),
    }


def streams() -> Iterator[Bad]:
    doors = {"attend": xa.attend, "attend_with_lse": xa.attend_with_lse, "explain": xa.explain}
    for door, call in doors.items():
        for name in ("query", "key", "value"):
            for kind, (given, shown) in {**no_tensors(KEY), "None": (None, "None")}.items():
                options = {"query": QUERY, "key": KEY, "value": KEY, name: given}
                if kind == "rank 0" and name == "query":
                    continue
                yield f"{door}, {kind}", name, shown, lambda c=call, o=options: c(**o)
    for kind, (given, shown) in no_tensors(KEY).items():
        yield f"weights, {kind}", "key", shown, lambda g=given: xa.attention_weights(QUERY, g)
    for name, given, shown in (
        ("query` and `key", torch.randn(2, 4, 7, 2), r"\[2, 4, 5, 3\] and \[2, 4, 7, 2\]"),
        ("query` and `key", torch.randn(3, 4, 7, 3), "2 query sequences and 3 memories"),
        ("heads", torch.randn(2, 3, 7, 3), "4 query heads over 3 key heads"),
        ("heads", torch.randn(2, 0, 7, 3), "4 query heads over 0 key heads"),
        ("query` and `key", KEY.to("meta"), "cpu and meta"),
        ("key", KEY[0], r"\[4, 7, 3\]"),
        ("query", KEY[None], r"\[2, 4, 5, 3\]"),
    ):
        query = QUERY[None] if name == "query" else QUERY
        shown = r"\[1, 2, 4, 5, 3\]" if name == "query" else shown
        yield f"attend, {shown}", name, shown, lambda q=query, g=given: xa.attend(q, g, g)
    other = torch.randn(2, 4, 6, 3)
    shown = r"\[2, 4, 7, 3\] and \[2, 4, 6, 3\]"
    yield "attend, rows", "key` and `value", shown, lambda: xa.attend(QUERY, KEY, other)


def masks() -> Iterator[Bad]:
    seen = torch.ones(5, 7, dtype=torch.bool)
    wrong = {
        "a list": ([[True]], "a list of 1"),
        "uint8": (seen.byte(), r"a uint8 .* \[5, 7\]"),
        "rank 1": (seen[0], r"\[7\]"),
        "rank 3": (seen[None], r"\[1, 5, 7\]"),
        "rank 5": (seen[None, None, None], r"\[1, 1, 1, 5, 7\]"),
        "too short": (seen[:, :6], r"\[5, 6\]"),
        "other batch": (seen.expand(3, 1, 5, 7), r"\[3, "),
        "no batch": (seen.expand(0, 1, 5, 7), r"\[0, 1, 5, 7\]"),
        "float": (seen.float(), "float32"),
        "sparse": (seen.to_sparse(), "sparse_coo bool"),
        "meta": (seen.to("meta"), "meta and cpu"),
    }
    memory = LAYER.remember(ROWS)
    for kind, (given, shown) in wrong.items():
        yield (
            f"attend, {kind}",
            "visible",
            shown,
            (lambda g=given: xa.attend(QUERY, KEY, KEY, visible=g)),
        )
        floats = given.float() if isinstance(given, Tensor) and kind not in ("uint8",) else given
        if kind != "float":
            shown = shown.replace("bool", "float32")
            yield (
                f"attend, {kind}",
                "bias",
                shown,
                (lambda g=floats: xa.attend(QUERY, KEY, KEY, bias=g)),
            )
    yield (
        "attend, bool",
        "bias",
        r"a bool tensor of shape \[5, 7\]",
        (lambda: xa.attend(QUERY, KEY, KEY, bias=seen)),
    )
    for name in ("visible", "bias"):
        given = torch.ones(3, 6) if name == "bias" else torch.ones(3, 6) > 0
        for door in (LAYER.forward, LAYER.weights):
            yield (
                f"layer {door.__name__}",
                name,
                r"\[3, 6\]",
                (lambda d=door, n=name, g=given: d(STREAM, memory, **{n: g})),
            )
    for kind, given in {
        "float": ROWS[0],
        "rank 3": ROWS > 0,
        "list": [[True]],
        "None": None,
    }.items():
        shown = {"float": r"float32 .* \[5, 6\]", "rank 3": r"\[2, 5, 6\]"}.get(kind, "")
        yield f"padding, {kind}", "padding", shown, lambda g=given: xa.from_padding_mask(g)
        given = ROWS > 0 if kind == "rank 3" else given
        yield (
            f"attention, {kind}",
            "attention_mask",
            shown,
            (lambda g=given: xa.from_attention_mask(g)),
        )
    for given, shown in ((torch.full((2, 3), 2), "2 to 2"), (-torch.ones(2, 3).long(), "-1 to -1")):
        yield (
            f"attention, {shown}",
            "attention_mask",
            shown,
            (lambda g=given: xa.from_attention_mask(g)),
        )


def numbers() -> Iterator[Bad]:
    for name, given in (
        ("scale", NAN),
        ("scale", INF),
        ("scale", "x"),
        ("scale", True),
        ("scale", 10**400),
        ("scale", torch.ones(3)),
        ("scale", 1j),
        ("softcap", 0),
        ("softcap", -1.0),
        ("softcap", NAN),
        ("softcap", INF),
        ("softcap", "x"),
        ("softcap", True),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", NAN),
        ("dropout", "x"),
        ("dropout", True),
        ("causal", True),
        ("causal", 0.5),
        ("causal", "corner"),
        ("kernel", None),
        ("kernel", 3),
        ("kernel", "flash"),
        ("kernel", ""),
        ("kernel", object()),
        ("kernel", Foreign),
        ("kernel", Foreign()),
        ("kernel", Nameless()),
        ("kernel", Foreign(Reading(QUERY[:1]))),
        ("kernel", Foreign(QUERY)),
    ):
        shown = re.escape(repr(given)[:12]) if isinstance(given, str | int | float) else ""
        yield (
            f"attend, {given!r:.30}",
            name,
            shown,
            (lambda n=name, g=given: xa.attend(QUERY, KEY, KEY, **{n: g})),
        )
        if name != "kernel":
            yield (
                f"lse, {given!r:.30}",
                name,
                shown,
                (lambda n=name, g=given: xa.attend_with_lse(QUERY, KEY, KEY, **{n: g})),
            )
        if name in ("scale", "softcap", "kernel", "dropout") and given is not True:
            yield f"layer, {given!r:.30}", name, shown, lambda n=name, g=given: changed(n, g)
    unlogged = Foreign(Reading(QUERY))
    yield (
        "lse of a kernel",
        "kernel",
        "a reading without",
        (lambda: xa.attend_with_lse(QUERY, KEY, KEY, kernel=unlogged)),
    )


def changed(name: str, value: object) -> Tensor:
    """Read with a layer of which one attribute was set to something it cannot be."""
    layer = xa.CrossAttention(8, 2, memory_width=6).eval()
    setattr(layer, name, value)
    return layer(STREAM, ROWS)


INTEGERS = {
    "bools": ([True, False], "a list of 2"),
    "a bool tensor": (torch.ones(2) > 0, "a bool tensor"),
    "floats": ([1.0, 2.0], r"\[1.0, 2.0\]"),
    "complex": (torch.ones(2) * 1j, "complex64"),
    "words": (["a", "b"], r"\['a', 'b'\]"),
    "a word": ("ab", "'ab'"),
    "a hole": ([1, None], "None"),
    "ragged": ([[1], [2, 3]], r"\[\[1\], \[2, 3\]\]"),
    "rank 2": (torch.ones(2, 1).long(), r"\[2, 1"),
    "rank 0": (3, "3"),
    "huge": ([10**30, 1], "1000"),
    "negative": ([-1, 1], "-1 to 1"),
    "beyond": ([99, 0], "0 to 99"),
    "sparse": (torch.ones(2).long().to_sparse(), "sparse_coo"),
    "meta": (torch.ones(2, device="meta").long(), "on meta"),
    "a dict": ({0: 1}, "a dict"),
    "unsigned": (torch.ones(2, dtype=torch.uint64), "uint64"),
}


def integers() -> Iterator[Bad]:
    shared = xa.Memory.of(ROWS).shared_by(2)
    doors = {
        ("attend", "lengths"): lambda g: xa.attend(QUERY, KEY, KEY, lengths=g),
        ("attend", "owner"): lambda g: xa.attend(QUERY, KEY, KEY, owner=g),
        ("Memory.of", "lengths"): lambda g: xa.Memory.of(ROWS, g),
        ("Owner.of", "owner"): lambda g: xa.Owner.of(g, 2),
        ("remember", "lengths"): lambda g: LAYER.remember(ROWS, g),
        ("encode", "lengths"): lambda g: MODEL.encode(SOURCE, g),
        ("greedy", "lengths"): lambda g: greedy(MODEL, SOURCE, g),
        ("Memory.select", "index"): lambda g: shared.select(g),
        ("Cache.select", "index"): lambda g: SELF.start(2, 3).select(g),
        ("weights", "heads"): lambda g: LAYER.weights(STREAM, ROWS, heads=g),
    }
    for (door, name), call in doors.items():
        for kind, (given, shown) in INTEGERS.items():
            yield f"{door}, {kind}", name, shown, lambda c=call, g=given: c(g)
    for count in (0, -1, 2.0, "2", True, None):
        shown = re.escape(repr(count))
        yield f"shared_by {count!r}", "count", shown, lambda n=count: shared.shared_by(n)
        yield f"shared {count!r}", "count", shown, lambda n=count: xa.Owner.shared(2, n)
        if count != 0:
            yield f"Owner.of {count!r}", "memories", shown, lambda n=count: xa.Owner.of([0], n)
    yield "Memory.of, too few", "lengths", r"\[1\]", lambda: xa.Memory.of(ROWS, [1])
    yield (
        "attend, owner of others",
        "owner",
        "2 entries over 3",
        (lambda: xa.attend(QUERY, KEY, KEY, owner=xa.Owner.of([0, 1], 3))),
    )


def memories() -> Iterator[Bad]:
    for kind, (given, shown) in {**no_tensors(ROWS), "rank 2": (ROWS[0], r"\[5, 6\]")}.items():
        yield f"Memory.of, {kind}", "rows", shown, lambda g=given: xa.Memory.of(g)
        yield f"Memory.of, {kind}", "value_rows", shown, lambda g=given: xa.Memory.of(ROWS, None, g)
        yield f"remember, {kind}", "rows", shown, lambda g=given: LAYER.remember(g)
        yield f"forward, {kind}", "rows", shown, lambda g=given: LAYER(STREAM, g)
    memory = LAYER.remember(ROWS)
    for name, shown, call in (
        ("rows", "None", lambda: xa.Memory.of(None)),
        (
            "rows` and `value_rows",
            "cpu and meta",
            lambda: xa.Memory.of(ROWS, [1, 2], ROWS.to("meta")),
        ),
        (
            "rows` and `value_rows",
            r"\[2, 5, 6\] and \[2, 4, 6\]",
            lambda: xa.Memory.of(ROWS, None, ROWS[:, :4]),
        ),
        ("lengths` and `value_rows", "beside a memory", lambda: LAYER.remember(memory, [1, 2])),
        ("memory", "others", lambda: LAYER(STREAM, xa.Memory.of(ROWS))),
        ("rows", r"\[2, 5, 7\]", lambda: LAYER.remember(torch.randn(2, 5, 7))),
        (
            "value_rows",
            r"\[2, 5, 7\]",
            lambda: LAYER.remember(ROWS, value_rows=torch.randn(2, 5, 7)),
        ),
        ("rows", "float64 on cpu", lambda: LAYER.remember(ROWS.double())),
        ("rows", "float16 on cpu", lambda: LAYER(STREAM, ROWS.half())),
        ("rows", "float32 on meta", lambda: LAYER.remember(ROWS.to("meta"))),
        ("queries", "-1", lambda: LAYER.remember(ROWS, queries=-1)),
        ("queries", "2.5", lambda: LAYER.remember(ROWS, queries=2.5)),
        ("queries", "True", lambda: LAYER.remember(ROWS, queries=True)),
        ("form", "'flat'", lambda: LAYER.remember(ROWS, form="flat")),
        ("form", "None", lambda: LAYER.remember(ROWS, form=None)),
        ("target", "3", lambda: memory.to(3)),
        ("target", "'nowhere'", lambda: memory.to("nowhere")),
        ("target", "None", lambda: memory.to(None)),
        ("target", "torch.int64", lambda: memory.to(torch.int64)),
        ("target", "float8", lambda: memory.to(torch.float8_e4m3fn)),
    ):
        yield f"memory, {shown}", name, shown, call


def layers() -> Iterator[Bad]:
    for size in (0, -8, 2.5, "8", None, True, torch.ones(2)):
        shown = re.escape(repr(size)) if not isinstance(size, Tensor) else r"\[2\]"
        makers = {
            "width": lambda n: xa.CrossAttention(n, 2),
            "heads": lambda n: xa.CrossAttention(8, n),
            "hidden": lambda n: FeedForward(8, n),
            "sequences": lambda n: SELF.start(n, 3),
            "capacity": lambda n: SELF.start(2, n),
            "memory_heads": lambda n: NullRow(n, 4, 4),
        }
        for name, call in makers.items():
            if name not in ("sequences", "capacity") or repr(size) != "0":
                yield f"{name}, {size!r}", name, shown, lambda c=call, n=size: c(n)
        yield f"SelfAttention, {size!r}", "width", shown, lambda n=size: xa.SelfAttention(n, 2)
        yield f"SelfAttention, {size!r}", "heads", shown, lambda n=size: xa.SelfAttention(8, n)
        yield f"NullRow, {size!r}", "value_width", shown, lambda n=size: NullRow(2, 4, n)
        for name in ("memory_width", "key_width", "value_width", "memory_heads"):
            if size is not None:
                yield (
                    f"layer, {size!r}",
                    name,
                    shown,
                    (lambda a=name, n=size: xa.CrossAttention(8, 2, **{a: n})),
                )
    for name, shown, call in (
        ("width", "8 over 3", lambda: xa.CrossAttention(8, 3)),
        ("width", "8 over 3", lambda: xa.SelfAttention(8, 3)),
        ("heads", "4 heads over 3", lambda: xa.CrossAttention(8, 4, memory_heads=3)),
        ("memory_width", "a tuple of 3", lambda: xa.CrossAttention(8, 2, memory_width=(8, 8, 8))),
        ("memory_width", "None", lambda: xa.CrossAttention(8, 2, memory_width=(8, None))),
        ("bias", "'no'", lambda: xa.CrossAttention(8, 2, bias="no")),
        ("dropout", "1.0", lambda: xa.CrossAttention(8, 2, dropout=1.0)),
        ("dropout", "nan", lambda: xa.SelfAttention(8, 2, dropout=NAN)),
        ("dropout", "1.5", lambda: EncoderBlock(8, 2, 16, dropout=1.5)),
        ("norm", "'mid'", lambda: DecoderBlock(8, 2, 16, norm="mid")),
        ("null_row", "a Identity", lambda: changed("null_row", nn.Identity())),
        ("null_row", r"\[3, 4\]", lambda: changed("null_row", NullRow(3, 4, 4))),
        ("null_row", r"\[2, 3\]", lambda: changed("null_row", NullRow(2, 3, 4))),
        ("null_row", r"\[2, 5\]", lambda: changed("null_row", NullRow(2, 4, 5))),
        ("query_projection", r"\[2, 3, 9\]", lambda: changed("query_projection", nn.Linear(8, 9))),
        ("query", r"\[2, 3, 8\]", lambda: changed("query_projection", nn.Linear(7, 8))),
        ("query", "float32 on cpu", lambda: changed("query_projection", nn.Linear(8, 8).double())),
        ("key_projection", "6 to 9", lambda: changed("key_projection", nn.Linear(6, 9))),
        ("key_projection", "7 to 8", lambda: changed("key_projection", nn.Linear(7, 8))),
        ("value_projection", "6 to 7", lambda: changed("value_projection", nn.Linear(6, 7))),
        (
            "output_projection",
            r"\[2, 3, 8\]",
            lambda: changed("output_projection", nn.Linear(9, 8)),
        ),
        ("query", "b = 1", lambda: LAYER(STREAM[:1], LAYER.remember(ROWS))),
        ("module", "a Linear", lambda: xa.from_torch(nn.Linear(2, 2))),
        ("module", "None", lambda: xa.from_torch(None)),
        ("cache", "None", lambda: SELF.step(STREAM, None)),
        ("cache", r"\[3, 2, 4, 4\]", lambda: SELF.step(STREAM, SELF.start(3, 4))),
        ("cache", r"\[2, 4, 4, 2\]", lambda: SELF.step(STREAM, xa.SelfAttention(8, 4).start(2, 4))),
        (
            "cache",
            "on meta",
            lambda: SELF.step(STREAM, Cache.empty(torch.zeros(2, 2, 1, 4, device="meta"), 4)),
        ),
        ("causal", "'top_left'", lambda: SELF(STREAM, causal="top_left")),
        ("readable", r"\[3\]", lambda: SELF(STREAM, readable=torch.ones(3) > 0)),
        ("readable", r"\[1, 3\]", lambda: SELF(STREAM, readable=torch.ones(1, 3) > 0)),
        ("readable", "float32", lambda: EncoderBlock(8, 2, 16)(STREAM, torch.ones(2, 3))),
        ("readable", "a list", lambda: SELF(STREAM, readable=[[True] * 3] * 2)),
    ):
        yield f"layer, {shown}", name, shown, call


def passed() -> Iterator[Bad]:
    """Streams that are passed to a layer."""
    wrong = no_tensors(STREAM) | {
        "None": (None, "None"),
        "rank 2": (STREAM[0], r"\[3, 8\]"),
        "float64": (STREAM.double(), "64"),
        "half": (STREAM.half(), "float16"),
        "meta": (STREAM.to("meta"), "meta"),
        "width": (STREAM[..., :7], r"\[2, 3, 7\]"),
    }
    memory = LAYER.remember(ROWS)
    encoder, decoder, cross = EncoderBlock(8, 2, 16), DecoderBlock(8, 2, 16), CrossBlock(8, 2, 16)
    doors = {
        "forward": ("query", lambda x: LAYER(x, memory)),
        "weights": ("query", lambda x: LAYER.weights(x, memory)),
        "self": ("stream", SELF),
        "step": ("stream", lambda x: SELF.step(x, SELF.start(2, 4))),
        "encoder block": ("stream", encoder),
        "decoder block": ("stream", lambda x: decoder(x, torch.randn(2, 5, 8))),
        "cross block": ("stream", lambda x: cross(x, torch.randn(2, 5, 8))),
        "feed-forward": ("stream", FeedForward(8, 16)),
    }
    for door, (name, call) in doors.items():
        for kind, (given, shown) in wrong.items():
            if (door, kind) not in {
                ("feed-forward", "rank 2"),
                *((each, "half") for each in ("encoder block", "decoder block", "cross block")),
            }:
                yield f"{door}, {kind}", name, shown, lambda c=call, g=given: c(g)


def parts() -> Iterator[Bad]:
    value, lse = torch.zeros(1, 1, 5, 3), torch.zeros(1, 1, 5)
    for shown, given in (
        ("None", None),
        (r"a list of 0: \[\]", []),
        (r"a float32 tensor of shape \[2, 2\]", value[0, 0, :2, :2]),
        (r"\[1, 1, 5, 3\]", [value]),
        ("a tuple of 3", [(value, lse, 1)]),
        ("a generator", (x for x in ())),
        (r"value of shape \[1, 1, 5, 2\]", [(value, lse), (value[..., :2], lse)]),
        (r"lse of shape \[1, 5\]", [(value, lse[0])]),
        ("int64", [(value, lse.long())]),
        ("int64", [(value.long(), lse)]),
        ("bool", [(value > 0, lse)]),
        ("complex64", [(value * 1j, lse)]),
        ("a list of 1", [([1.0], [1.0])]),
        ("sparse_coo", [(value.to_sparse(), lse)]),
        ("meta", [(value, lse), (value.to("meta"), lse.to("meta"))]),
        (r"\[\]", [(lse.sum(), lse.sum())]),
    ):
        yield f"merge, {shown}", "parts", shown, lambda g=given: xa.merge(g)


def configs() -> Iterator[Bad]:
    sizes = (
        "vocabulary",
        "width",
        "heads",
        "feed_forward",
        "encoder_layers",
        "decoder_layers",
        "max_length",
    )
    wrong: list[tuple[str, object]] = [
        (name, each) for name in sizes for each in (0, -1, 2.5, "x", True, None, [1])
    ]
    wrong += [(name, x) for name in ("pad", "begin", "end") for x in (-1, 2.5, "x", True, None, 11)]
    wrong += [("dropout", x) for x in (-1, 2.5, "x", True, None, NAN)]
    wrong += [
        ("alignment", x) for x in (0, "ab", (0,), (0.5, 0), (0, 9), (1, 0), (True, 0), [-1, 0])
    ]
    wrong += [("positions", "rotary"), ("positions", None), ("norm", "mid"), ("norm", None)]
    for name, given in wrong:
        shown = "" if isinstance(given, list | tuple) else re.escape(repr(given))
        yield f"Config, {given!r}", name, shown, lambda n=name, g=given: Config(**{**SMALL, n: g})
    yield "Config, 8 over 3", "width", "8 over 3", lambda: Config(**{**SMALL, "heads": 3})
    for name, given in (("pad", 1), ("begin", 2), ("end", 0)):
        yield (
            f"Config, twice {given}",
            "pad` and `begin` and `end",
            str(given),
            (lambda n=name, g=given: Config(**{**SMALL, n: g})),
        )
    for kind, names in ((BeamOptions, ("beams", "nbest")), (SampleOptions, ("samples", "top_k"))):
        for name in names:
            for given in (0, -1, 1.5, "x", True, [1]):
                yield (
                    f"{kind.__name__}, {given!r}",
                    name,
                    "",
                    (lambda k=kind, n=name, g=given: k(**{n: g})),
                )
    for kind, name, given in (
        (BeamOptions, "length_penalty", -1),
        (BeamOptions, "length_penalty", NAN),
        (BeamOptions, "length_penalty", INF),
        (BeamOptions, "early_stopping", 1),
        (BeamOptions, "early_stopping", "no"),
        (BeamOptions, "nbest", 5),
        (SampleOptions, "temperature", 0),
        (SampleOptions, "temperature", NAN),
        (SampleOptions, "temperature", "hot"),
        (SampleOptions, "top_p", 0),
        (SampleOptions, "top_p", 1.5),
        (SampleOptions, "top_p", None),
    ):
        yield (
            f"{kind.__name__}, {given!r}",
            name,
            re.escape(repr(given)),
            (lambda k=kind, n=name, g=given: k(**{n: g})),
        )
    for name in ("queries", "memory", "width", "heads", "batch", "beams", "layers", "life"):
        for given in (0, 2.5, "x", True):
            reads = {"queries": 1, "memory": 50, "width": 8, "heads": 2, name: given}
            yield f"Reads, {given!r}", name, re.escape(repr(given)), lambda r=reads: Reads(**r)
    for given in (torch.int64, "half", torch.float8_e4m3fn):
        yield (
            f"explain_forms, {given}",
            "dtype",
            str(given),
            (lambda g=given: explain_forms(Reads(1, 50, 8, 2), g)),
        )


def models() -> Iterator[Bad]:
    memory = MODEL.encode(SOURCE, LENGTHS)
    state = MODEL.start(memory)
    wrong: dict[str, tuple[object, str]] = {
        "a list": ([[3, 4]], "a list"),
        "an array": (SOURCE.numpy(), "a ndarray"),
        "None": (None, "None"),
        "float": (SOURCE.float(), "float32"),
        "bool": (SOURCE > 0, "a bool"),
        "int16": (SOURCE.short(), "int16"),
        "rank 1": (SOURCE[0], r"\[4\]"),
        "rank 3": (SOURCE[None], r"\[1, 2, 4\]"),
        "sparse": (SOURCE.to_sparse(), "sparse_coo"),
    }
    values: dict[str, tuple[object, str]] = {
        "beyond": (SOURCE + 20, "20 to 25"),
        "negative": (SOURCE - 9, "-9 to -4"),
        "long": (torch.full((2, 31), 3), "31 positions"),
        "meta": (SOURCE.to("meta"), "meta"),
    }
    doors: dict[str, Callable[[Any], object]] = {
        "encode": MODEL.encode,
        "decode": lambda x: MODEL.decode(x, memory),
        "decode_aligned": lambda x: MODEL.decode_aligned(x, memory),
        "step": lambda x: MODEL.step(x, memory, state),
        "start": lambda x: MODEL(x, LENGTHS, SOURCE),
    }
    for door, call in doors.items():
        for kind, (given, shown) in (wrong | values).items():
            yield f"{door}, {kind}", "tokens", shown, lambda c=call, g=given: c(g)
    for name, search in (("greedy", greedy), ("beam", beam), ("sample", sample)):
        for kind, (given, shown) in wrong.items():
            yield f"{name}, {kind}", "source", shown, lambda s=search, g=given: s(MODEL, g, LENGTHS)
        for kind, (given, shown) in values.items():
            if kind != "long":
                yield (
                    f"{name}, {kind}",
                    "tokens",
                    shown,
                    lambda s=search, g=given: s(MODEL, g, LENGTHS),
                )
    for name, shown, call in (
        ("memory", "None", lambda: MODEL.step(SOURCE[:, :1], None, state)),
        ("memory", r"\[2, 4, 8\]", lambda: MODEL.decode(SOURCE, torch.randn(2, 4, 8))),
        ("memory", "others", lambda: MODEL.decode(SOURCE, xa.Memory.of(torch.randn(2, 4, 8)))),
        ("memory", "None", lambda: MODEL.start(None)),
        ("query", "b = 2", lambda: MODEL.decode(SOURCE, memory.shared_by(2))),
        ("state", "None", lambda: MODEL.step(SOURCE[:, :1], memory, None)),
        (
            "state",
            "2 layers",
            lambda: MODEL.step(
                SOURCE[:, :1],
                memory,
                EncoderDecoder(Config(**{**SMALL, "decoder_layers": 2})).start(memory),
            ),
        ),
        (
            "cache",
            r"\[4, 2, 32, 4\]",
            lambda: MODEL.step(SOURCE[:, :1], memory, MODEL.start(memory.shared_by(2))),
        ),
        ("shown", r"\(5, 0\)", lambda: MODEL.step(SOURCE[:, :1], memory, state, ((5, 0),))),
        ("shown", r"\(0, 5\)", lambda: MODEL.step(SOURCE[:, :1], memory, state, ((0, 5),))),
        ("shown", r"\(0, -1\)", lambda: MODEL.step(SOURCE[:, :1], memory, state, ((0, -1),))),
        ("shown", "0", lambda: MODEL.step(SOURCE[:, :1], memory, state, (0, 0))),
        ("shown", "None", lambda: MODEL.step(SOURCE[:, :1], memory, state, None)),
        ("capacity", "-1", lambda: MODEL.start(memory, -1)),
        ("queries", "-1", lambda: MODEL.encode(SOURCE, queries=-1)),
        ("form", "'flat'", lambda: MODEL.encode(SOURCE, form="flat")),
        ("rows", "None", lambda: MODEL.remember(None)),
        ("model", "in training", lambda: greedy(EncoderDecoder(Config(**SMALL)), SOURCE, LENGTHS)),
        ("model", "None", lambda: greedy(None, SOURCE, LENGTHS)),
        ("model", "a Linear", lambda: beam(nn.Linear(2, 2).eval(), SOURCE, LENGTHS)),
        ("options", "a SampleOptions", lambda: beam(MODEL, SOURCE, LENGTHS, SampleOptions())),
        ("options", "a BeamOptions", lambda: sample(MODEL, SOURCE, LENGTHS, BeamOptions())),
        ("options", "4", lambda: beam(MODEL, SOURCE, LENGTHS, 4)),
        ("options", "a dict", lambda: beam(MODEL, SOURCE, LENGTHS, {"beams": 2})),
        ("generator", "3", lambda: sample(MODEL, SOURCE, LENGTHS, generator=3)),
        ("align", "'no'", lambda: greedy(MODEL, SOURCE, LENGTHS, align="no")),
        ("lengths", "None", lambda: greedy(MODEL, SOURCE, None)),
        *(
            (
                ("max_length"),
                re.escape(repr(n)),
                lambda n=n: greedy(MODEL, SOURCE, LENGTHS, max_length=n),
            )
            for n in (-1, 30, 1.5, "x", True)
        ),
        *(
            (("prefix"), shown, lambda p=p: greedy(MODEL, SOURCE, LENGTHS, prefix=p))
            for shown, p in (
                ("1 lists", [[3]]),
                ("token 2", [[2], []]),
                ("token 99", [[99], []]),
                ("1.5", [[1.5], []]),
                ("a list of 2", ["ab", ""]),
                ("3", 3),
                ("29 tokens|30 tokens|tokens", [[3] * 40, []]),
            )
        ),
    ):
        yield f"model, {shown}", name, shown, call


TABLE = [
    each
    for rows in (
        streams,
        masks,
        numbers,
        integers,
        memories,
        layers,
        passed,
        parts,
        configs,
        models,
    )
    for each in rows()
]


@pytest.mark.parametrize(
    ("door", "name", "shown", "call"),
    [
        # Addresses differ between processes, and names must not.
        pytest.param(*each, id=re.sub(r" at 0x\w+", "", f"{each[1]}: {each[0]}")[:60])
        for each in TABLE
    ],
)
def test_a_bad_input_is_refused_in_one_sentence(
    door: str, name: str, shown: str, call: Callable[[], object]
) -> None:
    with pytest.raises(xa.ContractError) as caught:
        call()
    message = FORM.fullmatch(str(caught.value))
    assert message, f"{door}: {caught.value}"
    assert f"`{name}`" in message[1] or name in message[1].strip("`").split("` and `")
    assert re.search(shown, message[3]), f"{door}: {message[3]} does not show {shown}"


def test_the_table_is_long_and_meets_every_door() -> None:
    assert len(TABLE) > 600
    assert issubclass(xa.ContractError, ValueError)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("config.json", b"", "config.json"),
        ("config.json", b'{"voc', "config.json"),
        ("config.json", b"[]", "config"),
        ("config.json", b"\xff\xfe", "config.json"),
        ("config.json", b"[" * 100_000, "config.json"),
        ("config.json", b"{}", "config.json"),
        ("config.json", b'{"vocabulary": 11, "zzz": 1}', "config"),
        ("config.json", b'{"vocabulary": "x"}', "vocabulary"),
        ("config.json", json.dumps({**SMALL, "alignment": [1]}).encode(), "alignment"),
        ("config.json", json.dumps({**SMALL, "dropout": "x"}).encode(), "dropout"),
        ("config.json", json.dumps({**SMALL, "end": 0}).encode(), "pad"),
        ("config.json", json.dumps({**SMALL, "width": 16}).encode(), "weights"),
        ("config.json", json.dumps({**SMALL, "vocabulary": 10**12}).encode(), "weights"),
        ("config.json", None, "folder"),
        ("model.safetensors", b"", "model.safetensors"),
        ("model.safetensors", b"hello world" * 9, "model.safetensors"),
        ("model.safetensors", None, "folder"),
    ],
)
def test_a_broken_model_is_refused(
    name: str, content: bytes | None, named: str, tmp_path: Path
) -> None:
    MODEL.save(tmp_path)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(xa.ContractError) as caught:
        EncoderDecoder.load(tmp_path)
    message = FORM.fullmatch(str(caught.value))
    assert message
    assert f"`{named}`" in message[1]


def test_where_a_model_is_kept_is_checked(tmp_path: Path) -> None:
    for given in (None, 3):
        with pytest.raises(xa.ContractError, match="`folder` must be a path"):
            EncoderDecoder.load(given)
        with pytest.raises(xa.ContractError, match="`folder` must be a path"):
            MODEL.save(given)
    for dtype in (torch.int64, "half"):
        with pytest.raises(xa.ContractError, match="`dtype` must be one of"):
            MODEL.save(tmp_path, dtype=dtype)


@pytest.mark.parametrize("kernel", ["reference", "matmul", "auto"])
def test_what_is_accepted_is_not_ignored(kernel: str) -> None:
    plain = xa.attend(QUERY, KEY, KEY, kernel=kernel)
    hidden = torch.ones(5, 7, dtype=torch.bool)
    hidden[:, 0] = False
    for name, given in (
        ("visible", hidden),
        ("bias", torch.randn(5, 7)),
        ("lengths", [3, 4]),
        ("owner", [1, 0]),
        ("causal", "top_left"),
        ("softcap", 0.1),
        ("scale", 2.0),
        ("dropout", 0.5),
    ):
        assert not torch.equal(xa.attend(QUERY, KEY, KEY, kernel=kernel, **{name: given}), plain)


@pytest.mark.parametrize("kernel", ["reference", "matmul", "fused", "auto"])
@pytest.mark.parametrize("sizes", [(0, 2, 3), (2, 0, 3), (2, 2, 0), (0, 0, 0)], ids=str)
def test_sizes_of_zero_neither_crash_nor_raise(kernel: str, sizes: tuple[int, ...]) -> None:
    b, t, s = sizes
    query, key = torch.randn(b, 2, t, 4), torch.randn(b, 2, s, 4)
    value, lse = xa.attend_with_lse(query, key, key, kernel=kernel)
    assert value.shape == (b, 2, t, 4)
    assert lse.shape == (b, 2, t)
    assert not value.any() or s
