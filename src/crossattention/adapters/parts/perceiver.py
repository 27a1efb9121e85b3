"""The cross-attention of Perceiver and Perceiver IO: latents read an input, outputs the latents.

    value[b, h, t] = softmax(W_q norm(l) · (W_k x̂ + b_k) · d^-½ + mask) (W_v x̂ + b_v),   x̂ = norm(x)

With one head as wide as the input, reading the normed rows raw takes about half of the
multiply-adds and keeps no keys and values of a long input. Self-attention in the same class is the
class's own. Papers: Jaegle et al. 2021, "Perceiver"; 2022, "Perceiver IO".
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

KINDS = (
    (
        "transformers.models.perceiver.modeling_perceiver",
        "PerceiverSelfAttention",
        ("hidden_states", "attention_mask", "inputs", "inputs_mask", "output_attentions"),
    ),
)


class PerceiverForward(Replaced):
    """The forward of an adopted attention module of a Perceiver."""

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        inputs: Tensor | None = None,
        inputs_mask: Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> tuple[Tensor, ...]:
        """Read; arguments and results are the class's."""
        module: Any = self.module
        if inputs is None or not self._fits(hidden_states, inputs, inputs_mask):
            answer: tuple[Tensor, ...] = self.stock(
                hidden_states, attention_mask, inputs, inputs_mask, output_attentions
            )
            return answer
        asked = module.query(module.layernorm1(hidden_states))
        rows = module.layernorm2(inputs)
        posed = _heads(module).pose(
            asked.unflatten(-1, (module.num_heads, -1)).transpose(1, 2),  # -> [b, h, t, d]
            rows,
            masks=Masks.seen(inputs_mask),
            dropout=module.dropout.p if module.training else 0.0,
            form=self.form,
        )
        if not output_attentions:
            read = posed.values(lowest=inputs_mask is not None)
            return (read.transpose(1, 2).flatten(2),)  # [b, h, t, e] -> [b, t, h·e]
        values, weights = posed.values_and_weights()
        return values.transpose(1, 2).flatten(2), weights.to(values.dtype)

    def _fits(self, hidden_states: Tensor, inputs: Tensor, mask: Tensor | None) -> bool:
        heads: Any = self.module.num_heads
        shape = (inputs.shape[0], heads, hidden_states.shape[1], inputs.shape[1])
        additive = mask is None or mask.is_floating_point()
        return hidden_states.shape[0] == inputs.shape[0] and additive and fits(mask, shape)


class PerceiverAttention(Replacing):
    """Adopt the attention modules of Perceivers.

    >>> PerceiverAttention().knows(nn.Linear(2, 2))
    False
    """

    kind = "Perceiver (transformers)"
    answers = PerceiverForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them, and reads another stream."""
        return kind_of(module, KINDS) is not None and isinstance(
            getattr(module, "layernorm2", None), nn.LayerNorm
        )

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its class has changed, or the rows cannot be read in this form."""
        check_kind(module, KINDS)
        check_replaceable(module)
        check_form(form, _heads(module).refusals())


def _heads(module: Any) -> Heads:
    h, d, e = module.num_heads, module.qk_channels_per_head, module.v_channels_per_head
    (width,) = module.layernorm2.normalized_shape
    sizes = Sizes(module.layernorm1.normalized_shape[0], h, h, d, e, (width, width))
    return Heads(module.key, module.value, sizes, d**-0.5)
