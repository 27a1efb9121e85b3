"""diffusers' `Attention` over a prompt: its text is projected once for all denoising steps.

    value[b, h, t] = softmax(q·k · scale + mask) v,   k = norm(W_k text),   v = W_v text

A pipeline hands the same text tensor to each step, both halves of guidance in it. An attention
processor, diffusers' own place for such things, keeps the keys and values while that very tensor
lives unwritten and the maps are as they were. Paper: Rombach et al. 2022, "High-Resolution Image
Synthesis with Latent Diffusion Models".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from crossattention.adapters.parts.heads import pose
from crossattention.adapters.parts.kept_text import KeptText
from crossattention.adapters.parts.masks import Masks
from crossattention.adapters.parts.named import check_kind, kind_of
from crossattention.attention.attend import read
from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Score
from crossattention.nn.form import check_form

PLACE = "diffusers.models.attention_processor"
KINDS = ((PLACE, "Attention", ("hidden_states", "encoder_hidden_states", "attention_mask")),)
STOCK = ("AttnProcessor2_0", "AttnProcessor")


class TextProcessor:
    """Read a prompt whose keys and values are kept; whatever else comes goes to the stock one.

    Args:
        stock: the processor that the module had.
    """

    def __init__(self, stock: Any) -> None:
        self.stock = stock
        self.kept = KeptText()

    # diffusers takes the names of these parameters for the ones that may be passed.
    def _process(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        text, b = encoder_hidden_states, hidden_states.shape[0]
        if text is None or text.dim() != 3 or hidden_states.dim() != 3 or len(text) != b:
            answer: Tensor = self.stock(
                attn, hidden_states, text, attention_mask, temb, *args, **kwargs
            )
            return answer
        stream = hidden_states
        if attn.group_norm is not None:
            stream = attn.group_norm(stream.transpose(1, 2)).transpose(1, 2)
        fused = type(self.stock).__name__ == STOCK[0]
        query = _split(attn, attn.to_q(stream), attn.norm_q if fused else None)
        key, value = self.kept.of(
            text,
            [attn.to_k, attn.to_v, *_there(attn.norm_cross, attn.norm_k if fused else None)],
            lambda: _project(attn, text, fused),
        )
        masks = Masks.seen(_rank_four(attn, attention_mask, text))
        score = Score(query.shape[-1] ** -0.5 if fused else attn.scale)
        found = read(pose(query, (key, value), masks, score)).value
        output = attn.to_out[1](attn.to_out[0](found.transpose(1, 2).flatten(2)))
        if attn.residual_connection:
            output = output + hidden_states
        divided: Tensor = output / attn.rescale_output_factor
        return divided

    __call__ = _process


class DenoisingAttention:
    """Adopt diffusers' `Attention` where it reads another stream.

    >>> DenoisingAttention().knows(nn.Linear(2, 2))
    False
    """

    kind = "diffusers' Attention over a prompt"
    whole = True

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one that reads another stream."""
        return kind_of(module, KINDS) is not None and bool(
            getattr(module, "is_cross_attention", False)
        )

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its class or its processor is another, or the raw form is asked for."""
        check_kind(module, KINDS)
        attn: Any = module
        kind = type(attn.processor)
        if kind.__module__ != PLACE or kind.__name__ not in STOCK:
            do = "set one of these first, or adopt without this module"
            want = f"a module whose processor is {' or '.join(STOCK)}"
            raise ContractError(complaint("module", want, f"one with {kind.__name__}", do))
        sizes = (attn.inner_dim, attn.spatial_norm, attn.added_kv_proj_dim, attn.fused_projections)
        if sizes != (attn.inner_kv_dim, None, None, False) or attn.to_out is None:
            want = "without spatial norm, added or fused maps, and of one head width"
            raise ContractError(complaint("module", want, "another one", "leave it out"))
        reasons = ["the prompt's keys and values are what is kept between steps"]
        check_form(form, reasons)

    def adopt(self, module: nn.Module, form: str) -> None:
        """Put a processor around the one it has."""
        vars(module)["processor"] = TextProcessor(vars(module)["processor"])

    def release(self, module: nn.Module) -> None:
        """Give it its processor back, if ours is still there."""
        processor = vars(module).get("processor")
        if isinstance(processor, TextProcessor):
            vars(module)["processor"] = processor.stock


def _project(attn: Any, text: Tensor, fused: bool) -> tuple[Tensor, Tensor]:
    """Map text [b, s, c] to keys and values [b, h, s, d]."""
    rows = attn.norm_encoder_hidden_states(text) if attn.norm_cross else text
    key = _split(attn, attn.to_k(rows), attn.norm_k if fused else None)
    value = _split(attn, attn.to_v(rows), None)
    if torch.is_grad_enabled():
        return key, value
    return key.contiguous(), value.contiguous()  # many steps lie ahead


def _split(attn: Any, rows: Tensor, norm: Any) -> Tensor:
    split = rows.unflatten(-1, (attn.heads, -1)).transpose(1, 2)  # [b, s, h·d] -> [b, h, s, d]
    normed: Tensor = split if norm is None else norm(split)
    return normed


def _rank_four(attn: Any, mask: Tensor | None, text: Tensor) -> Tensor | None:
    """Repeat a mask as diffusers does, to [b, h, t or 1, s]."""
    if mask is None:
        return None
    b, s, _ = text.shape
    prepared: Tensor = attn.prepare_attention_mask(mask, s, b)
    return prepared.view(b, attn.heads, -1, prepared.shape[-1])


def _there(*modules: nn.Module | None) -> list[nn.Module]:
    return [module for module in modules if module is not None]
