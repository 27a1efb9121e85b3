"""The cross-attention of BLIP-2's and InstructBLIP's query formers.

    value[b, h, t] = softmax(q·(W_k image + b_k) · d^-½ + mask) (W_v image + b_v)

32 queries over a few hundred image rows that are wider than the queries: reading the rows raw takes
about six tenths of the multiply-adds. Self-attention in the same class is the class's own. Papers:
Li et al. 2023, "BLIP-2"; Dai et al. 2023, "InstructBLIP".
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from crossattention.adapters.parts.heads import Heads
from crossattention.adapters.parts.masks import Masks, fits
from crossattention.adapters.parts.named import check_kind, kind_of
from crossattention.adapters.parts.replaced import Replaced, Replacing, check_replaceable
from crossattention.nn.form import check_form
from crossattention.nn.sizes import Sizes

TAKES = ("hidden_states", "attention_mask", "encoder_hidden_states", "encoder_attention_mask")
KINDS = tuple(
    (f"transformers.models.{place}.modeling_{place}", f"{name}QFormerMultiHeadAttention", TAKES)
    for place, name in (
        ("blip_2", "Blip2"),
        ("instructblip", "InstructBlip"),
        ("instructblipvideo", "InstructBlipVideo"),
    )
)


class QFormerForward(Replaced):
    """The forward of an adopted attention module of a query former."""

    def _answer(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Read the image's rows; arguments and results are the class's."""
        module: Any = self.module
        rows, eager = encoder_hidden_states, module.config._attn_implementation == "eager"
        if (
            rows is None
            or module.config._attn_implementation not in ("eager", "sdpa")
            or hidden_states.shape[0] != rows.shape[0]
            or not fits(encoder_attention_mask, _shape(module, hidden_states, rows))
        ):
            answer: tuple[Tensor, Tensor | None] = type(module).forward(
                module, hidden_states, attention_mask, rows, encoder_attention_mask, **others
            )
            return answer
        asked = module.query(hidden_states).unflatten(-1, (module.num_attention_heads, -1))
        posed = _heads(module).pose(
            asked.transpose(1, 2),  # [b, t, h, d] -> [b, h, t, d]
            rows,
            masks=Masks.seen(encoder_attention_mask),
            dropout=module.attention_dropout if module.training else 0.0,
            form=self.form,
        )
        values, weights = posed.values_and_weights() if eager else (posed.values(), None)
        shown = None if weights is None else weights.to(values.dtype)
        return values.transpose(1, 2).flatten(2), shown  # [b, h, t, d] -> [b, t, c]

    __call__ = _answer  # whatever else its caller hands on is the class's to name


class QFormerAttention(Replacing):
    """Adopt the attention modules of query formers.

    >>> QFormerAttention().knows(nn.Linear(2, 2))
    False
    """

    kind = "the query formers of BLIP-2 and InstructBLIP (transformers)"
    answers = QFormerForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        return kind_of(module, KINDS) is not None

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its class has changed, or the rows cannot be read in this form."""
        check_kind(module, KINDS)
        check_replaceable(module)
        check_form(form, _heads(module).refusals())


def _shape(module: Any, asking: Tensor, rows: Tensor) -> tuple[int, int, int, int]:
    return asking.shape[0], module.num_attention_heads, asking.shape[1], rows.shape[1]


def _heads(module: Any) -> Heads:
    h, d = module.num_attention_heads, module.attention_head_size
    width = module.config.encoder_hidden_size
    sizes = Sizes(module.config.hidden_size, h, h, d, d, (width, width))
    return Heads(module.key, module.value, sizes, module.scaling)
