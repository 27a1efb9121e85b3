"""Give CTranslate2 the very weights of an `EncoderDecoder`, by its public model specifications."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crossattention import nn as xnn
from crossattention.seq2seq import EncoderDecoder


def convert(model: EncoderDecoder, folder: Path, quantization: str) -> None:
    """Write a pre-norm model into a new folder as CTranslate2 reads it.

    Args:
        model: whose token i is written as the word `str(i)`, but for pad, begin and end.
        folder: made here.
        quantization: "float32" or "int8".
    """
    from ctranslate2.specs import TransformerSpec

    config = model.config
    layers = (config.encoder_layers, config.decoder_layers)
    spec = TransformerSpec.from_config(layers, config.heads, pre_norm=config.norm == "pre")
    spec.config.unk_token = name(config.pad, model)  # it is never written
    spec.config.decoder_start_token = name(config.begin, model)
    spec.config.bos_token, spec.config.eos_token = (
        name(token, model) for token in (config.begin, config.end)
    )
    words = [name(token, model) for token in range(config.vocabulary)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    with torch.no_grad():
        _encoder(spec.encoder, model)
        _decoder(spec.decoder, model)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir()
    spec.save(str(folder))


def name(token: int, model: EncoderDecoder) -> str:
    """Name a token in CTranslate2's vocabulary."""
    special = {model.config.pad: "<pad>", model.config.begin: "<s>", model.config.end: "</s>"}
    return special.get(token, str(token))


def _encoder(spec: Any, model: EncoderDecoder) -> None:
    _embed(spec.embeddings[0], spec, model)
    _norm(spec.layer_norm, model.encoder_norm)
    for layer, block in zip(spec.layer, model.encoder, strict=True):
        assert isinstance(block, xnn.EncoderBlock)
        _self(layer.self_attention, block)
        _feed(layer.ffn, block)


def _decoder(spec: Any, model: EncoderDecoder) -> None:
    _embed(spec.embeddings, spec, model)
    _norm(spec.layer_norm, model.decoder_norm)
    spec.projection.weight = _own(model.embedding.tokens.weight)
    for layer, block in zip(spec.layer, model.decoder, strict=True):
        assert isinstance(block, xnn.DecoderBlock)
        _self(layer.self_attention, block)
        _feed(layer.ffn, block)
        cross = block.cross_attention
        _norm(layer.attention.layer_norm, block.around_cross.norm)
        query, both, output = layer.attention.linear
        _linear(query, cross.query_projection)
        _linear(both, cross.key_projection, cross.value_projection)
        _linear(output, cross.output_projection)


def _embed(embeddings: Any, spec: Any, model: EncoderDecoder) -> None:
    embeddings.weight = _own(model.embedding.tokens.weight)
    spec.scale_embeddings = True
    spec.position_encodings.encodings = _own(model.embedding.positions)


def _self(spec: Any, block: xnn.EncoderBlock | xnn.DecoderBlock) -> None:
    _norm(spec.layer_norm, block.around_self.norm)
    _linear(spec.linear[0], block.self_attention.projection)  # queries, keys, values: as theirs
    _linear(spec.linear[1], block.self_attention.output_projection)


def _feed(spec: Any, block: xnn.EncoderBlock | xnn.DecoderBlock) -> None:
    _norm(spec.layer_norm, block.around_feed.norm)
    _linear(spec.linear_0, block.feed_forward.expand)
    _linear(spec.linear_1, block.feed_forward.contract)


def _norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _own(norm.get_parameter("weight"))
    spec.beta = _own(norm.get_parameter("bias"))


def _own(tensor: Tensor) -> Any:
    """Copy: the converter changes its arrays in place, and a view would change our model."""
    return tensor.detach().clone().numpy()


def _linear(spec: Any, *layers: nn.Module) -> None:
    spec.weight = _own(torch.cat([layer.get_parameter("weight") for layer in layers]))
    spec.bias = _own(torch.cat([layer.get_parameter("bias") for layer in layers]))
