"""An encoder-decoder: the encoder reads the source once, the decoder reads what it left.

    p(y_t | y_<t, x) = softmax(E · decoder(y_<t, memory(x)))

The source is encoded and each layer projects it exactly once; greedy search, beams and sampling
share that memory. Teacher-forced and step-by-step decoding agree. Paper: Vaswani et al. 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from crossattention.mask import check_lengths
from crossattention.memory import Memory
from crossattention.nn.block import DecoderBlock, EncoderBlock
from crossattention.seq2seq.config import Config
from crossattention.seq2seq.embedding import Embedding
from crossattention.seq2seq.save import StrPath, fill, read_model, write_model
from crossattention.seq2seq.state import Heads, State, check_memory, check_shown, check_state


class EncoderDecoder(nn.Module):
    """Translate token sequences into token sequences.

    Args:
        config: the model's shape.

    >>> model = EncoderDecoder(Config(vocabulary=11, width=8, heads=2, feed_forward=16)).eval()
    >>> model(torch.tensor([[3, 4, 2]]), torch.tensor([3]), torch.tensor([[1, 5]])).shape
    torch.Size([1, 2, 11])
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        sizes = (config.width, config.heads, config.feed_forward)
        self.encoder = nn.ModuleList(
            EncoderBlock(*sizes, dropout=config.dropout, norm=config.norm)
            for _ in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(*sizes, dropout=config.dropout, norm=config.norm)
            for _ in range(config.decoder_layers)
        )
        pre = config.norm == "pre"  # post-norm blocks end in a norm of their own
        self.encoder_norm = nn.LayerNorm(config.width) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.width) if pre else nn.Identity()

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        """Score every next token of known targets.

        Args:
            source: int64 `[b, s]`; lengths: int64 `[b]`; target: int64 `[b, t]`, from `begin` on.
        Returns:
            logits `[b, t, vocabulary]`: row i is the prediction after target token i.
        """
        return self.logits(self.decode(target, self.encode(source, lengths)))

    def encode(
        self,
        tokens: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
        form: str = "auto",
    ) -> Memory:
        """Encode sources and let every decoder layer prepare them, once.

        Args:
            tokens: int64 `[m, s]`, padded at the end.
            lengths: integers `[m]`; None: all real.
            queries: how many target tokens will read each source over its life; None: many.
            reads, form: as in `CrossAttention.remember`.
        """
        rows = self.embedding(tokens)  # [m, s] -> [m, s, c]
        readable = None
        if lengths is not None:
            lengths = check_lengths(lengths, *tokens.shape).to(tokens.device)
            column = torch.arange(tokens.shape[1], device=tokens.device)
            readable = column < lengths[:, None]  # [m] -> [m, s]
        for block in self.encoder:
            rows = block(rows, readable)
        return self.remember(
            self.encoder_norm(rows), lengths, queries=queries, reads=reads, form=form
        )

    def remember(
        self,
        rows: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        *,
        queries: int | None = None,
        reads: int | None = None,
        form: str = "auto",
    ) -> Memory:
        """Prepare encoded rows [m, s, c] for every decoder layer, once.

        Arguments as in `CrossAttention.remember`.
        """
        memory = Memory.of(rows, lengths)
        for block in self._decoder_blocks():
            memory = block.cross_attention.remember(memory, queries=queries, reads=reads, form=form)
        return memory.without_rows() if memory.holding.projected else memory

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        """Read known targets all at once: int64 [b, t] -> rows [b, t, c]."""
        return self._run(target, memory, None, ())[0]

    def decode_aligned(self, target: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Read known targets, and show what each token read: rows [b, t, c], weights [b, t, s].

        Row i of the weights is what target token i read, averaged over `alignment_heads`.
        """
        rows, _, maps = self._run(target, memory, None, self.alignment_heads)
        return rows, maps.mean(1)  # [b, k, t, s] -> [b, t, s]

    def start(self, memory: Memory, capacity: int = 32) -> State:
        """Stand before the first token, for every query sequence of the memory."""
        check_memory(memory)
        caches = [
            block.self_attention.start(memory.sequences, capacity)
            for block in self._decoder_blocks()
        ]
        return State(tuple(caches), 0)

    def step(
        self, tokens: Tensor, memory: Memory, state: State, shown: Heads = ()
    ) -> tuple[Tensor, State, Tensor]:
        """Read the tokens that follow.

        Args:
            tokens: int64 `[b, t]`, often t = 1.
            memory, state: what is read, and the past.
            shown: (layer, head) pairs, by layer, whose weights are returned.
        Returns:
            rows `[b, t, c]`, the new state, and weights `[b, k, t, s]` (k = 0 if none are shown).
        """
        check_state(state, self.config)
        check_shown(shown, self.config)
        return self._run(tokens, memory, state, shown)

    @property
    def alignment_heads(self) -> Heads:
        """The heads shown as alignment: the config's, or all of the layer before the last."""
        if self.config.alignment is not None:
            return (self.config.alignment,)
        layer = max(self.config.decoder_layers - 2, 0)
        return tuple((layer, head) for head in range(self.config.heads))

    def save(self, folder: StrPath, *, dtype: torch.dtype | None = None) -> None:
        """Write `config.json` and `model.safetensors`; `dtype` stores weights narrower, say."""
        write_model(folder, self.config, self.state_dict(), dtype)

    @classmethod
    def load(cls, folder: StrPath) -> EncoderDecoder:
        """Read a saved model, ready for use: in evaluation mode, half precision as float32."""
        config, tensors = read_model(folder)
        with torch.random.fork_rng(devices=()):  # weights are read: drawing them leaves no trace
            with torch.device("meta"):
                fill(cls(config), tensors, assign=True)  # sizes that do not fit take no memory
            model = cls(config)
        fill(model, tensors)
        return model.eval()

    def _decoder_blocks(self) -> list[DecoderBlock]:
        return cast(list[DecoderBlock], list(self.decoder))

    def _run(
        self, tokens: Tensor, memory: Memory, state: State | None, shown: Heads
    ) -> tuple[Tensor, State, Tensor]:
        check_memory(memory)
        past = 0 if state is None else state.length
        stream = self.embedding(tokens, past)  # [b, t] -> [b, t, c]
        caches, maps = [], [stream.new_zeros(stream.shape[0], 0, stream.shape[1], memory.size[1])]
        for index, block in enumerate(self._decoder_blocks()):
            if state is None:
                stream = block.read_self(stream)
            else:
                stream, longer = block.step_self(stream, state.caches[index])
                caches.append(longer)
            heads = [head for layer, head in shown if layer == index]
            if heads:
                maps.append(block.weights(stream, memory, heads))
            stream = block.read_memory(stream, memory)
        rows: Tensor = self.decoder_norm(stream)
        return rows, State(tuple(caches), past + tokens.shape[1]), torch.cat(maps, 1)

    def logits(self, rows: Tensor) -> Tensor:
        """Score rows [..., c] against the vocabulary [..., vocabulary]."""
        return self.embedding.logits(rows)
