"""`torch.nn.TransformerDecoder` and its layers: three verbs to decode with, and forward as it was.

    memory = decoder.remember(rows, lengths)
    state = decoder.start(memory)
    output, state = decoder.step(stream, memory, state)

Torch's decoder has no cache: token after token it projects the memory again and reads the whole
past again. What these verbs keep is a value that the caller passes on.
"""

from __future__ import annotations

from torch import nn

from crossattention.adapters.parts.replaced import check_takes
from crossattention.adapters.parts.stepping import Stepping, layers_of
from crossattention.errors import ContractError, complaint, describe

VERBS = ("remember", "start", "step")
MASKS = (
    "tgt", "memory", "tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask",
    "tgt_is_causal", "memory_is_causal",
)  # fmt: skip


class Decoder:
    """Give each decoder, and each decoder layer, the verbs of `Stepping`.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16)
    >>> Decoder().adopt(layer, "auto")
    >>> layer.start.__self__.decoder is layer
    True
    """

    kind = "torch.nn.TransformerDecoder"
    whole = False  # the attention inside it is adopted as well

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is a decoder or one of its layers, with torch's own forward."""
        return any(
            isinstance(module, kind) and type(module).forward is kind.forward
            for kind in (nn.TransformerDecoder, nn.TransformerDecoderLayer)
        )

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its layers are others than torch's, or it has attributes of these names."""
        for kind in (nn.TransformerDecoder, nn.TransformerDecoderLayer):
            check_takes(kind, MASKS)
        layers = layers_of(module)
        if not layers:
            raise ContractError(complaint("module", "of a layer or more", "none", "add some"))
        for layer in layers:
            attentions = (getattr(layer, name, None) for name in ("self_attn", "multihead_attn"))
            if not _is_stock(layer) or not all(map(_is_plain, attentions)):
                want = "of torch.nn.TransformerDecoderLayer, with its own attention"
                do = "adopt the attention modules inside it one by one"
                raise ContractError(complaint("module", want, describe(layer), do))
        taken = [verb for verb in VERBS if hasattr(module, verb)]
        if taken:
            want, do = f"without attributes {', '.join(VERBS)}", "rename them"
            raise ContractError(complaint("module", want, f"one with {', '.join(taken)}", do))

    def adopt(self, module: nn.Module, form: str) -> None:
        """Give it the verbs."""
        stepping = Stepping(module, form)
        for verb in VERBS:
            setattr(module, verb, getattr(stepping, verb))

    def release(self, module: nn.Module) -> None:
        """Take the verbs away."""
        for verb in VERBS:
            if isinstance(getattr(vars(module).get(verb), "__self__", None), Stepping):
                delattr(module, verb)


def _is_stock(layer: nn.Module) -> bool:
    kind = nn.TransformerDecoderLayer
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def _is_plain(attention: object) -> bool:
    kind = nn.MultiheadAttention
    return (
        isinstance(attention, kind)
        and type(attention).forward is kind.forward
        and attention.in_proj_weight is not None
        and attention.bias_k is None
        and not attention.add_zero_attn
    )
