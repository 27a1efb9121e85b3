"""The attention of Idefics2's perceiver resampler: latents read an image and themselves at once.

    value[b, h, t] = softmax(W_q l · W_k x · d^-½ + mask) (W_v x),   x = image rows, then latents

Four key and value heads serve sixteen query heads and are not copied for each; rows go in whichever
form takes less. Paper: Laurençon et al. 2024, "What matters when building vision-language models?".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossattention.adapters.parts.heads import Heads
from crossattention.adapters.parts.masks import Masks, fits
from crossattention.adapters.parts.named import check_kind, kind_of
from crossattention.adapters.parts.replaced import Replaced, Replacing, check_replaceable
from crossattention.nn.form import check_form
from crossattention.nn.sizes import Sizes

KINDS = (
    (
        "transformers.models.idefics2.modeling_idefics2",
        "Idefics2PerceiverAttention",
        ("latents", "context", "attention_mask", "position_ids", "cache"),
    ),
)


class ResamplerForward(Replaced):
    """The forward of an adopted attention module of Idefics2's resampler."""

    def _answer(
        self,
        latents: Tensor,
        context: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        **others: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Read; arguments and results are the class's."""
        module: Any = self.module
        kind, (b, t, _) = module.config._attn_implementation, latents.shape
        shape = (b, module.num_heads, t, context.shape[1] + t)
        cached = cache is not None or getattr(module, "cache", None) is not None
        if cached or kind not in ("eager", "sdpa") or not fits(attention_mask, shape):
            answer: tuple[Tensor, Tensor | None] = type(module).forward(
                module, latents, context, attention_mask, position_ids, cache, **others
            )
            return answer
        asked = module.q_proj(latents).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        posed = _heads(module).pose(
            asked,  # [b, h, t, d]
            torch.cat((context, latents), 1),
            masks=Masks.seen(attention_mask),
            dropout=module.attention_dropout if module.training else 0.0,
            form=self.form,
        )
        eager = kind == "eager"
        values, weights = posed.values_and_weights() if eager else (posed.values(), None)
        output = module.o_proj(values.transpose(1, 2).flatten(2))  # [b, h, t, d] -> [b, t, c]
        return output, None if weights is None else weights.to(values.dtype)

    __call__ = _answer  # whatever else its caller hands on is the class's to name


class Idefics2Resampler(Replacing):
    """Adopt the attention modules of Idefics2's resampler.

    >>> Idefics2Resampler().knows(nn.Linear(2, 2))
    False
    """

    kind = "Idefics2's perceiver resampler (transformers)"
    answers = ResamplerForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        return kind_of(module, KINDS) is not None

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its class has changed, or the rows cannot be read in this form."""
        check_kind(module, KINDS)
        check_replaceable(module)
        check_form(form, _heads(module).refusals())


def _heads(module: Any) -> Heads:
    c, h, g, d = module.hidden_size, module.num_heads, module.num_key_value_heads, module.head_dim
    return Heads(module.k_proj, module.v_proj, Sizes(c, h, g, d, d, (c, c)), module.scaling)
