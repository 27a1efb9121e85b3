"""Cross-attention: one stream asks, another is read.

    output = W_o · attend(W_q x, W_k m, W_v m)

The memory is projected once, by `remember`, and read as often as needed; a query row that may read
nothing adds exactly nothing, not even the output projection's bias. Paper: Vaswani et al. 2017,
"Attention Is All You Need", section 3.2.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crossattention.memory import Memory
from crossattention.nn.few_rows import mapped
from crossattention.nn.initialise import initialise
from crossattention.nn.project import check_stream, finish, heads_of
from crossattention.nn.reader import Reader
from crossattention.nn.sizes import Sizes
from crossattention.nn.turn import turned


class CrossAttention(Reader):
    """Read a memory with several heads: W_o · concat_h softmax(q_h·k_h · d^-½) v_h.

    Args:
        width: c, of the query stream and of the output.
        heads: h.
        memory_width: width of the memory's rows, or (key rows, value rows) where they differ;
            None: `width`.
        key_width: d, the width of one head's queries and keys; None: width // heads.
        value_width: e, the width of one head's values; None: `key_width`.
        memory_heads: g, key and value heads, which h is a multiple of; None: h.
        bias: whether the four projections have one.
        dropout: probability that a weight is dropped in training.

    Submodules that may be replaced: `query_projection`, `key_projection`, `value_projection`,
    `output_projection` (Xavier-uniform, biases 0), `query_norm`, `key_norm` (`nn.Identity`),
    `null_row` (None, a `NullRow` or a `Sink`), `rotary` (None or a `Rotary`). Attributes that may
    be set: `scale` (d^-½), `softcap` (None), `kernel` ("auto"). `remember`: see `Reader`.

    Differs from `torch.nn.MultiheadAttention`: masks say what is visible; the memory can be kept;
    maps never change the path; an empty row is unchanged by the layer instead of NaN.

    >>> import torch
    >>> layer = CrossAttention(width=8, heads=2, memory_width=6)
    >>> memory = layer.remember(torch.randn(1, 5, 6), lengths=[4])
    >>> layer(torch.randn(1, 3, 8), memory).shape
    torch.Size([1, 3, 8])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        memory_width: int | tuple[int, int] | None = None,
        key_width: int | None = None,
        value_width: int | None = None,
        memory_heads: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        head_widths = (key_width, value_width)
        sizes = Sizes.of(width, heads, memory_width, head_widths, memory_heads)
        super().__init__(sizes, bias, dropout)
        d, e = sizes.key_width, sizes.value_width
        self.query_projection: nn.Module = nn.Linear(width, heads * d, bias)
        self.output_projection: nn.Module = nn.Linear(heads * e, width, bias)
        self.query_norm: nn.Module = nn.Identity()
        initialise(self)

    def forward(
        self,
        query: Tensor,
        memory: Tensor | Memory,
        *,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Read.

        Args:
            query: `[b, t, c]`.
            memory: a Memory from `remember` (neither foreign nor stale), or rows `[b, s, c_k]`.
            visible: bool, each axis of `[b, h, t, s]` full or 1, or `[t, s]`; True = may be read.
            bias: float of the same shapes, added to the scores.
            positions: `[b|1, t]` or `[t]`, where the query rows stand; for a layer with `rotary`.
        Returns:
            `[b, t, c]`; exactly 0 for a row that may read nothing in any head.
        """
        asked, memory = self.ask(query, positions), self._remembered(memory, query)
        found = self.read(asked, memory, visible=visible, bias=bias)
        merged = found.value.transpose(1, 2).flatten(2)  # [b, h, t, e] -> [b, t, h·e]
        return finish(merged, self.output_projection, found.reads)

    def weights(
        self,
        query: Tensor,
        memory: Tensor | Memory,
        *,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
        positions: Tensor | None = None,
        heads: Sequence[int] | None = None,
    ) -> Tensor:
        """Show what each query row reads: the weights [b, h, t, s] before dropout.

        Arguments as in `forward`; `heads` keeps some heads only. Rows sum to 1, to 0 where empty,
        and to what the null row leaves where there is one.
        """
        asked, memory = self.ask(query, positions), self._remembered(memory, query)
        return self.weights_of(asked, memory, visible=visible, bias=bias, heads=heads)

    def ask(self, query: Tensor, positions: Tensor | None = None) -> Tensor:
        """Project, norm and turn a query [b, t, c] -> [b, h, t, d].

        >>> import torch
        >>> CrossAttention(8, 2).ask(torch.randn(1, 3, 8)).shape
        torch.Size([1, 2, 3, 4])
        """
        sizes, projection = self.sizes, self.query_projection
        check_stream("query", query, sizes.width, projection)
        asked = mapped(projection, query)
        projected = heads_of("query_projection", asked, sizes.heads, sizes.key_width)
        return turned(self.rotary, self.query_norm(projected), positions, "the query")

    def _remembered(self, memory: Tensor | Memory, query: Tensor) -> Memory:
        if isinstance(memory, Memory):
            return memory
        return self.at_once(Memory.of(memory), query.shape[1])
