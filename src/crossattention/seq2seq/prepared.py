"""A model prepared for writing: its own numbers, and nothing that only training needs.

    x <- x + part(norm(x))   or   norm(x + part(x))

A small model is bound by calls more than by arithmetic. So weights are laid out once, sums and ReLU
belong to the product before them, everything was checked beforehand, and the past of all layers
moves as one. It gives what `EncoderDecoder.encode` and `step` give, up to rounding; a model with a
part it does not know (hooks, other modules, another device) is run as it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as of_torch

from crossattention.attention.hidden import build_mask
from crossattention.kernels.contract import is_mixed
from crossattention.memory import Memory
from crossattention.nn.block import DecoderBlock, EncoderBlock, Residual
from crossattention.nn.cross_attention import CrossAttention
from crossattention.nn.feed_forward import FeedForward
from crossattention.nn.half import HalfEmbedding, HalfLinear
from crossattention.nn.packed import Packed, can_pack
from crossattention.nn.raw import is_watched
from crossattention.nn.self_attention import SelfAttention
from crossattention.nn.stamp import stamp_of
from crossattention.seq2seq.embedding import Embedding
from crossattention.seq2seq.layer import Asked, EncoderLayer, Layer, Norm
from crossattention.seq2seq.model import EncoderDecoder
from crossattention.seq2seq.past import Past
from crossattention.seq2seq.state import Heads

KNOWN = (
    EncoderDecoder, Embedding, EncoderBlock, DecoderBlock, Residual, SelfAttention, CrossAttention,
    FeedForward, nn.ModuleList, nn.Embedding, HalfEmbedding, nn.Linear, HalfLinear, nn.LayerNorm,
    nn.Identity, nn.ReLU, nn.Dropout,
)  # fmt: skip


class Standing(NamedTuple):
    """Where a prepared decoder stands: its past, and its readings, which change with the memory."""

    past: Past
    memory: Memory
    shown: Heads
    asked: list[Asked]

    def select(self, index: Tensor) -> Standing:
        """Keep the sequences named by `index` [b'], in its order."""
        return self._replace(past=self.past.select(index))


class Prepared:
    """Run a model whose weights do not change meanwhile, under `torch.inference_mode`.

    Args:
        model: one that `prepared` accepts.

    >>> from crossattention.seq2seq.config import Config
    >>> model = EncoderDecoder(Config(vocabulary=11, width=8, heads=2)).eval()
    >>> memory = model.encode(torch.tensor([[3, 4, 2]]), form="projected")
    >>> with torch.inference_mode():
    ...     decoder = Prepared(model)
    ...     past = decoder.start(memory, capacity=4)
    ...     rows, past, _ = decoder.step(torch.tensor([[1]]), memory, past)
    >>> decoder.logits(rows).shape
    torch.Size([1, 1, 11])
    """

    def __init__(self, model: EncoderDecoder) -> None:
        embedding = model.embedding
        self.table, self.scale = embedding.tokens.weight.detach(), embedding.scale
        self.positions = embedding.positions.detach()
        self.encoder = [EncoderLayer(cast(EncoderBlock, block)) for block in model.encoder]
        self.layers = [Layer(cast(DecoderBlock, block)) for block in model.decoder]
        self.encoder_norm, self.norm = _last(model.encoder_norm), _last(model.decoder_norm)
        self.scores = Packed.of(self.table, None)

    def encode(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Encode embedded sources [m, s, c] of some lengths [m]; what lies beyond is anything."""
        m, s, c = rows.shape
        real = torch.arange(s) < lengths[:, None]  # [m] -> [m, s]
        hidden = None if bool(real.all()) else real
        mask = build_mask((m, 1, s, s), rows.device, hidden, None, None, None, None)[0]
        stream = rows.reshape(-1, c)  # [m, s, c] -> [m·s, c]
        for layer in self.encoder:
            stream = layer.think(layer.read_all(stream, mask, (m, s)))
        return (stream if self.encoder_norm is None else self.encoder_norm(stream)).view(m, s, c)

    def start(self, memory: Memory, capacity: int) -> Standing:
        """Stand before the first token, for every query sequence of the memory."""
        heads = self.layers[0].heads
        width = self.table.shape[1] // heads
        like = self.positions.new_empty(memory.sequences, len(self.layers), 2, heads, width)
        return Standing(Past.empty(like, capacity), memory, (), self._ask(memory, ()))

    def step(
        self, tokens: Tensor, memory: Memory, state: Standing, shown: Heads = ()
    ) -> tuple[Tensor, Standing, Tensor]:
        """Read the next token of each sequence: see `EncoderDecoder.step`, with t = 1."""
        if state.memory is not memory or state.shown != shown:  # sentences have left
            state = state._replace(memory=memory, shown=shown, asked=self._ask(memory, shown))
        place = self.positions[state.past.length]
        rows = F.embedding(tokens[:, 0], self.table).float()  # [b, 1] -> [b, c]
        stream = rows * self.scale + place
        past, maps = state.past.grown(), [stream.new_zeros(len(stream), 0, 1, memory.size[1])]
        for at, (layer, asked) in enumerate(zip(self.layers, state.asked, strict=True)):
            stream = layer.read_self(stream, past, at)
            stream, found = layer.read_memory(stream, asked)
            stream = layer.think(stream)
            maps += found
        state = state._replace(past=past)
        rows = stream if self.norm is None else self.norm(stream)
        return rows[:, None], state, torch.cat(maps, 1) if shown else maps[0]  # -> [b, 1, c]

    def logits(self, rows: Tensor) -> Tensor:
        """Score rows [..., c] against the vocabulary [..., vocabulary]."""
        scores: Tensor = self.scores(rows.flatten(0, -2)).unflatten(0, rows.shape[:-1])
        return scores

    def _ask(self, memory: Memory, shown: Heads) -> list[Asked]:
        heads = [[head for at, head in shown if at == n] for n in range(len(self.layers))]
        return [layer.ask(memory, each) for layer, each in zip(self.layers, heads, strict=True)]


def prepared(model: EncoderDecoder) -> Prepared | None:
    """Prepare a model, or find it as it was prepared; None where it cannot be.

    >>> from crossattention.seq2seq.config import Config
    >>> prepared(EncoderDecoder(Config(vocabulary=11, width=8, heads=2)).double().eval()) is None
    True
    """
    if not torch.is_inference_mode_enabled() or is_mixed() or of_torch._has_any_global_hook():
        return None
    if not _is_ready(model):
        return None
    stamp, found = stamp_of(model), _PREPARED.get(model)
    if found is None or found[0] != stamp:
        made = Prepared(model) if stamp and knows(model) else None
        found = _PREPARED[model] = stamp, made
    return found[1]


_PREPARED: WeakKeyDictionary[EncoderDecoder, tuple[Hashable, Prepared | None]] = WeakKeyDictionary()


def knows(model: EncoderDecoder) -> bool:
    """Whether every module is of a known class, and does what its class says.

    >>> from crossattention.seq2seq.config import Config
    >>> knows(EncoderDecoder(Config(vocabulary=11, width=8, heads=2)).eval())
    True
    """
    if not _is_ready(model):
        return False
    if not all(type(each) in KNOWN and not is_watched(each) for each in model.modules()):
        return False
    if not all(can_pack(each) for each in (*model.parameters(), *model.buffers())):
        return False
    if any(each.dtype is not torch.float32 for each in model.parameters()):
        return False
    blocks = cast(list[EncoderBlock | DecoderBlock], [*model.encoder, *model.decoder])
    return all(_is_plain(block) for block in blocks)


def _is_ready(model: EncoderDecoder) -> bool:
    return type(model) is EncoderDecoder and not any(each.training for each in model.modules())


def _is_plain(block: EncoderBlock | DecoderBlock) -> bool:
    own, feed = block.self_attention, block.feed_forward
    linears = [own.projection, own.output_projection, feed.expand, feed.contract]
    residuals, kernels = [block.around_self, block.around_feed], [own.kernel]
    if isinstance(block, DecoderBlock):
        cross = block.cross_attention
        linears += [cross.query_projection, cross.key_projection]
        linears += [cross.value_projection, cross.output_projection]
        residuals.append(block.around_cross)
        kernels.append(cross.kernel)
        if (cross.null_row, cross.rotary, cross.softcap) != (None, None, None):
            return False
        if not (type(cross.query_norm) is type(cross.key_norm) is nn.Identity):
            return False
    return (
        all(kernel == "auto" for kernel in kernels)
        and type(feed.activation) is nn.ReLU
        and all(type(each) in (nn.Linear, HalfLinear) for each in linears)
        and all(type(each.norm) is nn.LayerNorm for each in residuals)
    )


def _last(norm: nn.Module) -> Norm | None:
    return None if type(norm) is nn.Identity else Norm.of(norm)
