"""Gates: closed they change no bit and still learn to open; open they read what a row may read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import crossattention as xa
from crossattention.media import from_media, media_count
from crossattention.nn import GatedCrossAttention, NullRow, Sink

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
MODES = ("latest", "all_previous")


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Compare bit by bit: -0.0 is not 0.0, and NaN is itself."""
    kind = BITS[left.element_size()]
    return left.dtype == right.dtype and torch.equal(left.view(kind), right.view(kind))


def made(seed: int = 0, *, opened: bool = True, **options: Any) -> GatedCrossAttention:
    torch.manual_seed(seed)
    layer = GatedCrossAttention(12, 4, **{"memory_width": 5, "feed_forward": 17, **options})
    if opened:
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5)
    return layer.double().eval()


def streams(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Draw text [3, 11, 12], some of it 0.0 and -0.0, and media rows [3, 7, 5]."""
    text = torch.randn(3, 11, 12, dtype=torch.float64)
    text[0, 1], text[1, 2], text[2, 3, ::2] = -0.0, 0.0, -0.0
    return text.to(dtype), torch.randn(3, 7, 5, dtype=torch.float64).to(dtype)


def interleaved() -> tuple[Tensor, Tensor, list[int]]:
    """Draw `count` for texts with one, no and three media; the rows' media; lengths."""
    starts = torch.zeros(3, 11, dtype=torch.bool)
    starts[0, 4] = True
    starts[2, [0, 5, 10]] = True
    media = torch.tensor([[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 2, 2, 2], [2, 1, 1, 3, 2, 3, 3]])
    return media_count(starts), media, [4, 7, 6]


def by_hand(layer: GatedCrossAttention, stream: Tensor, memory: Tensor, **masks: Any) -> Tensor:
    """The two equations, for rows that all read something."""
    asked = layer.norm_attention(stream)
    attention = layer.cross_attention
    stream = stream + layer.gate_attention.tanh() * attention(asked, memory, **masks)
    return stream + layer.gate_feed.tanh() * layer.feed_forward(layer.norm_feed(stream))


@pytest.mark.parametrize("gates", ["scalar", "vector"])
def test_open_gates_follow_the_equations(gates: str) -> None:
    layer, (text, rows) = made(gates=gates), streams()
    assert layer.gate_feed.shape == ((1,) if gates == "scalar" else (12,))
    found = layer(text, rows)
    torch.testing.assert_close(found, by_hand(layer, text, rows), atol=1e-12, rtol=1e-12)
    assert bool((found != text).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gates", ["scalar", "vector"])
def test_closed_gates_change_no_bit(dtype: torch.dtype, gates: str) -> None:
    layer, (text, rows) = made(opened=False, gates=gates).to(dtype), streams(dtype)
    count, media, lengths = interleaved()
    rows[0, 4:] = torch.nan
    memory = layer.remember(rows, lengths)
    assert same_bits(layer(text, memory), text)
    assert same_bits(layer(text, memory, count=count, media=media), text)
    assert same_bits(layer.train()(text, memory), text)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_closed_gates_change_no_bit_under_autocast(dtype: torch.dtype) -> None:
    layer, (text, rows) = made(opened=False).float(), streams(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        assert same_bits(layer(text, rows), text)
        layer.gate_feed.data.fill_(0.5)
        assert layer(text, rows).dtype == dtype
        assert not torch.equal(layer(text, rows), text)


def test_closed_gates_let_nothing_through_that_is_not_finite() -> None:
    layer, (text, rows) = made(opened=False), streams()
    rows[0, 2], text[2, 5] = torch.inf, torch.nan
    assert not layer.cross_attention(text, rows)[0].isfinite().any()
    assert same_bits(layer(text, rows), text)
    layer.gate_attention.data.fill_(0.1)
    assert not layer(text, rows)[0].isfinite().any()  # behind an open one it is not hidden


@pytest.mark.parametrize("gates", ["scalar", "vector"])
def test_closed_gates_have_the_gradient_to_open_by(gates: str) -> None:
    layer, (text, rows) = made(opened=False, gates=gates), streams()
    layer(text.requires_grad_(), rows).sin().sum().backward()
    shape, slope = layer.gate_feed.shape, text.detach().cos()
    asked = layer.cross_attention(layer.norm_attention(text), rows)
    thought = layer.feed_forward(layer.norm_feed(text))
    for gate, part in ((layer.gate_attention, asked), (layer.gate_feed, thought)):
        wanted = (slope * part).flatten(0, 1).sum(0).detach()
        wanted = wanted.sum().view(1) if gates == "scalar" else wanted
        torch.testing.assert_close(gate.grad, wanted, atol=1e-12, rtol=1e-12)
        assert bool((wanted != 0).all()) and wanted.shape == shape
    assert torch.equal(text.grad, slope)
    assert not layer.feed_forward.expand.weight.grad.any()


def test_one_step_opens_the_gates_and_then_all_parts_learn() -> None:
    layer, (text, rows) = made(opened=False), streams()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        (layer(text, rows) - 1).square().mean().backward()
        optimizer.step()
    assert all(gate.item() for gate in (layer.gate_attention, layer.gate_feed))
    skipped = {"cross_attention.key_projection.bias"}  # the softmax does not see it
    for name, parameter in layer.named_parameters():
        assert name in skipped or bool(parameter.grad.any()), name


@pytest.mark.parametrize("form", ["projected", "raw"])
def test_gradients_equal_those_of_the_equations(form: str) -> None:
    layer, (text, rows) = made(), streams()
    inputs = [text.requires_grad_(), rows.requires_grad_(), *layer.parameters()]
    found, wanted = layer(text, layer.remember(rows, form=form)), by_hand(layer, text, rows)
    ours = torch.autograd.grad(found.sin().sum(), inputs)
    theirs = torch.autograd.grad(wanted.sin().sum(), inputs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("reads", MODES)
def test_each_row_reads_its_media_and_others_are_unchanged(reads: str) -> None:
    layer, (text, rows), (count, media, lengths) = made(reads=reads), streams(), interleaved()
    memory = layer.remember(rows, lengths)
    found = layer(text, memory, count=count, media=media)
    visible = from_media(count, media, reads=reads)
    wanted = by_hand(layer, text, memory, visible=visible)
    reading = (visible[:, 0] & (torch.arange(7) < torch.tensor(lengths)[:, None])[:, None]).any(-1)
    assert reading.any(1).tolist() == [True, False, True] and not reading[0, :4].any()
    torch.testing.assert_close(found[reading], wanted[reading], atol=1e-12, rtol=1e-12)
    assert same_bits(found[~reading], text[~reading])
    assert bool((wanted[~reading] != text[~reading]).all())  # the feed-forward part alone would act
    shown = layer.weights(text, memory, count=count, media=media, heads=[2, 0])
    assert shown.shape == (3, 2, 11, 7)
    torch.testing.assert_close(shown.sum(-1), reading[:, None].double().expand(-1, 2, -1))
    assert not shown.masked_select(~visible).any()


def test_what_is_read_differs_by_mode() -> None:
    (text, rows), (count, media, _) = streams(), interleaved()
    latest, every = (made(reads=reads)(text, rows, count=count, media=media) for reads in MODES)
    assert same_bits(latest[:2], every[:2]) and same_bits(latest[2, :5], every[2, :5])
    assert bool((latest[2, 5:] != every[2, 5:]).any(-1).all())


def test_an_unread_row_gives_no_gradient_and_passes_its_own() -> None:
    layer, (text, rows), (count, media, _) = made(), streams(), interleaved()
    text.requires_grad_()
    layer(text, rows, count=count, media=media)[1].sin().sum().backward()
    assert torch.equal(text.grad[1], text[1].detach().cos())
    assert all(not parameter.grad.any() for parameter in layer.parameters())


def test_a_memory_without_rows_adds_nothing() -> None:
    layer, (text, rows) = made(), streams()
    found = layer(text, layer.remember(rows, [7, 0, 3]))
    assert same_bits(found[1], text[1]) and bool((found[[0, 2]] != text[[0, 2]]).all())
    assert same_bits(layer(text, rows[:, :0]), text)
    short = layer(text[:, :0], rows)
    assert short.shape == (3, 0, 12)


def test_null_rows_are_read_where_nothing_else_is_and_sinks_are_not() -> None:
    layer, (text, rows) = made(), streams()
    memory = layer.remember(rows, [7, 0, 3])
    layer.cross_attention.null_row = Sink(4).double()
    assert same_bits(layer(text, memory)[1], text[1])
    layer.cross_attention.null_row = NullRow(4, 3, 3).double()
    assert bool((layer(text, memory)[1] != text[1]).all())


def test_hidden_rows_may_hold_anything() -> None:
    layer, (text, rows), (count, media, lengths) = made(), streams(), interleaved()
    layer.reads = "all_previous"
    clean, dirty = rows.clone().requires_grad_(), rows.clone()
    dirty[1], dirty[0, 4:], dirty[2, 6] = torch.nan, torch.inf, torch.nan  # [1]: no medium begins
    dirty.requires_grad_()
    grads = []
    for each in (clean, dirty):
        memory = layer.remember(each, lengths)
        found = layer(text, memory, count=count, media=media)
        grads.append(torch.autograd.grad(found.sin().sum(), [each, *layer.parameters()]))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("reads", MODES)
def test_step_by_step_equals_all_at_once(reads: str) -> None:
    layer, (text, rows), (count, media, lengths) = made(reads=reads), streams(), interleaved()
    memory = layer.remember(rows, lengths, queries=11)
    whole = layer(text, memory, count=count, media=media)
    steps = [
        layer(text[:, t : t + 1], memory, count=count[:, t : t + 1], media=media) for t in range(11)
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-12, rtol=1e-12)


def test_beams_share_a_memory_and_its_media() -> None:
    layer, (text, rows), (count, media, lengths) = made(), streams(), interleaved()
    order = torch.tensor([2, 2, 0, 1, 2])  # beams that were reordered
    memory = layer.remember(rows, lengths).shared_by(2).select(order * 2)
    found = layer(text[order], memory, count=count[order], media=media)
    copied = layer.remember(rows[order], torch.tensor(lengths)[order])
    wanted = layer(text[order], copied, count=count[order], media=media[order])
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=1e-12)
    one = layer(text[order], memory, count=count[order].clamp(max=1), media=media[0])
    wanted = layer(text[order], copied, count=count[order].clamp(max=1), media=media[0])
    torch.testing.assert_close(one, wanted, atol=1e-12, rtol=1e-12)
    blocks = layer.remember(rows, lengths).shared_by(2)
    twice = layer(text.repeat_interleave(2, 0), blocks)
    torch.testing.assert_close(twice[1::2], layer(text, layer.remember(rows, lengths)))


def test_layers_share_one_memory() -> None:
    first, second = made(0), made(1)
    (text, rows), (count, media, lengths) = streams(), interleaved()
    memory = second.remember(first.remember(rows, lengths))
    own = first.remember(rows, lengths), second.remember(rows, lengths)
    shared = second(first(text, memory, count=count, media=media), memory, count=count, media=media)
    wanted = second(first(text, own[0], count=count, media=media), own[1], count=count, media=media)
    assert same_bits(shared, wanted)
    assert same_bits(shared[1], text[1]) and same_bits(shared[0, :4], text[0, :4])
    with pytest.raises(xa.ContractError, match="made by the layer that reads it"):
        second(text, own[0])


def test_dropout_acts_in_training_only() -> None:
    layer, (text, rows) = made(dropout=0.5), streams()
    assert torch.equal(layer(text, rows), layer(text, rows))
    assert not torch.equal(layer.train()(text, rows), layer(text, rows))
    layer.dropout.p = 1.0
    assert same_bits(layer(text, rows), text)


def test_compiled_it_is_the_same() -> None:
    layer, (text, rows), (count, media, lengths) = made(), streams(), interleaved()
    memory = layer.remember(rows, lengths)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found = compiled(text, memory, count=count, media=media)
    torch.testing.assert_close(found, layer(text, memory, count=count, media=media))
    nn.init.zeros_(layer.gate_attention)
    nn.init.zeros_(layer.gate_feed)
    memory = layer.remember(rows, lengths)
    assert same_bits(compiled(text, memory, count=count, media=media), text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reads": "first"}, '`reads` must be "latest" or "all_previous", got \'first\'; choose'),
        ({"gates": "matrix"}, '`gates` must be "scalar" or "vector", got \'matrix\'; choose'),
        ({"feed_forward": 0}, "`feed_forward` must be an integer of at least 1, got 0; pass"),
        ({"dropout": 1.5}, "`dropout` must be from 0 to 1, got 1.5; it is"),
        ({"memory_width": 0}, "`memory_width` must be"),
        ({"width": 13}, "got .*13"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(xa.ContractError, match=message):
        GatedCrossAttention(**{"width": 12, "heads": 4, **options})


COUNT, MEDIA = torch.ones(3, 11, dtype=torch.int64), torch.ones(7, dtype=torch.int64)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"count": COUNT}, "`count` and `media` must be both given.*got `count` alone; without"),
        ({"media": MEDIA}, "`count` and `media` must be both given.*got `media` alone; without"),
        ({"count": COUNT[:, :4]}, r"`count` must be .*\[3, 11\].*shape \[3, 4\]; count the media"),
        ({"count": COUNT.double()}, "`count` must be integers.*float64.*; count the media"),
        ({"count": COUNT * 2}, "`count` must be at most the last medium"),
        ({"media": MEDIA[:5]}, r"`media` must be .*s = 7, got .*shape \[5\]; number"),
        ({"media": MEDIA.expand(2, 7)}, r"`media` must be .*m = 3.*shape \[2, 7\]; number"),
        ({"media": MEDIA * 0}, "`media` must be 1 or more"),
        ({"stream": torch.ones(3, 11, 13).double()}, r"`stream` must be \[b, t, 12\].*13\]; proj"),
        ({"stream": torch.ones(3, 11, 12)}, "`stream` must be float64 on cpu.*float32.*; convert"),
        ({"stream": torch.ones(2, 11, 12).double()}, r"`stream` must be .*b = 3.*\[2, 11, 12\]; "),
        ({"memory": torch.ones(3, 7, 6).double()}, r"`rows` must be of width 5.*\[3, 7, 6\]; ch"),
    ],
)
def test_bad_readings_are_refused(given: dict[str, Any], message: str) -> None:
    layer, (text, rows) = made(), streams()
    if "stream" not in given and "memory" not in given and len(given) == 1:
        alone = "both given" in message
        given = given if alone else {"count": COUNT, "media": MEDIA, **given}
    arguments = {"stream": text, "memory": rows, **given}
    with pytest.raises(xa.ContractError, match=message):
        layer(**arguments)
    with pytest.raises(xa.ContractError, match=message):
        layer.weights(**arguments)


def test_a_half_stream_is_named_where_the_norm_would_take_it() -> None:
    layer, (text, rows) = made().float(), streams(torch.float32)
    with pytest.raises(xa.ContractError, match="`stream` must be float32 on cpu.*bfloat16"):
        layer(text.bfloat16(), rows)


class GatedMap(nn.Module):
    """SwiGLU without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        mapped: Tensor = self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return mapped


def like_idefics(theirs: nn.Module, gates: str, normed: bool) -> GatedCrossAttention:
    """Build Hugging Face's layer of ours, with its weights under our names."""
    ours = GatedCrossAttention(12, 4, memory_width=5, gates=gates)
    attention = ours.cross_attention
    for name, width in (("query", 12), ("key", 5), ("value", 5), ("output", 12)):
        setattr(attention, f"{name}_projection", nn.Linear(width, 12, bias=False))
    ours.norm_attention, ours.norm_feed = nn.RMSNorm(12, 1e-5), nn.RMSNorm(12, 1e-5)
    ours.feed_forward = GatedMap(12, 17)
    if normed:
        attention.query_norm, attention.key_norm = nn.RMSNorm(3, 1e-5), nn.RMSNorm(3, 1e-5)
    names = {
        "input_layernorm": "norm_attention", "post_attention_layernorm": "norm_feed",
        "alpha_cross_attn": "gate_attention", "alpha_dense": "gate_feed", "mlp": "feed_forward",
        "cross_attn": "cross_attention", "q_layer_norm": "query_norm", "k_layer_norm": "key_norm",
        "q_proj": "query_projection", "k_proj": "key_projection", "v_proj": "value_projection",
        "o_proj": "output_projection",
    }  # fmt: skip
    weights = {
        ".".join(names.get(part, part) for part in name.split(".")): weight
        for name, weight in theirs.state_dict().items()
    }
    for gate in ("gate_attention", "gate_feed"):
        weights[gate] = weights[gate].flatten()
    ours.load_state_dict(weights)
    return ours.double().eval()


@pytest.mark.parametrize("gates", ["scalar", "vector"])
@pytest.mark.parametrize("normed", [False, True])
def test_equal_to_idefics_where_a_row_reads(gates: str, normed: bool) -> None:
    pytest.importorskip("transformers")
    from transformers.models.idefics.configuration_idefics import IdeficsConfig
    from transformers.models.idefics.modeling_idefics import IdeficsGatedCrossAttentionLayer

    torch.manual_seed(5)
    config = IdeficsConfig(
        hidden_size=12, num_attention_heads=4, intermediate_size=17, rms_norm_eps=1e-5,
        qk_layer_norms=normed, alpha_type="float" if gates == "scalar" else "vector",
        vision_config={"embed_dim": 5}, attn_implementation="eager",
    )  # fmt: skip
    theirs = IdeficsGatedCrossAttentionLayer(config, layer_idx=0).double().eval()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.7)
    ours = like_idefics(theirs, gates, normed)
    (text, rows), (count, media, lengths) = streams(), interleaved()
    visible = (
        from_media(count, media) & (torch.arange(7) < torch.tensor(lengths)[:, None])[:, None, None]
    )
    hidden = (
        torch.zeros(visible.shape).double().masked_fill(~visible, torch.finfo(torch.double).min)
    )
    reading = visible.any(-1).squeeze(1)
    wanted = theirs(
        text, image_hidden_states=rows, image_attention_mask=hidden,
        cross_attention_gate=reading.double(),
    )  # fmt: skip
    found = ours(text, ours.remember(rows, lengths), count=count, media=media)
    torch.testing.assert_close(found[reading], wanted[reading], atol=1e-6, rtol=1e-6)
    # Theirs feeds forward what read nothing; ours passes it by.
    assert same_bits(found[~reading], text[~reading])
    fed = text + ours.gate_feed.tanh() * ours.feed_forward(ours.norm_feed(text))
    torch.testing.assert_close(wanted[~reading], fed[~reading], atol=1e-6, rtol=1e-6)
