"""Tiny random models of every family, built from their configs, and inputs they can take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from transformers import PreTrainedModel

VOCABULARY, ROWS = 97, 7
_IDS = {"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_START = {"decoder_start_token_id": 3, **_IDS}
_BART = {
    "d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 31, "decoder_ffn_dim": 31, **_START,
}  # fmt: skip
_T5 = {"d_model": 24, "d_kv": 5, "num_heads": 3, "num_layers": 2, "d_ff": 31, **_START}
_SEAMLESS = {
    "hidden_size": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 3,
    "decoder_attention_heads": 3, "encoder_ffn_dim": 31, "decoder_ffn_dim": 31, **_START,
}  # fmt: skip
_BERT = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 31,
    "vocab_size": VOCABULARY, "pad_token_id": 1,
}  # fmt: skip
_POSITIONS = {"max_position_embeddings": 64}


def _whisper() -> PreTrainedModel:
    config = hf.WhisperConfig(
        **_BART, num_mel_bins=8, max_source_positions=11, max_target_positions=32,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return hf.WhisperForConditionalGeneration(config)


def _speech_to_text() -> PreTrainedModel:
    config = hf.Speech2TextConfig(
        **_BART, input_feat_per_channel=8, conv_channels=16, max_source_positions=64,
        max_target_positions=64,
    )  # fmt: skip
    return hf.Speech2TextForConditionalGeneration(config)


def _moonshine(padded: bool = False) -> PreTrainedModel:
    config = hf.MoonshineConfig(
        hidden_size=24, intermediate_size=31, encoder_num_hidden_layers=1,
        decoder_num_hidden_layers=2, encoder_num_attention_heads=3, decoder_num_attention_heads=3,
        pad_head_dim_to_multiple_of=16 if padded else None, max_position_embeddings=64, **_START,
    )  # fmt: skip
    return hf.MoonshineForConditionalGeneration(config)


def _pix2struct() -> PreTrainedModel:
    text = {
        "hidden_size": 24, "d_kv": 8, "d_ff": 31, "num_layers": 2, "num_heads": 3,
        "is_decoder": True, **_START,
    }  # fmt: skip
    vision = {
        "hidden_size": 24, "patch_embed_hidden_size": 12, "d_kv": 8, "d_ff": 31,
        "num_hidden_layers": 1, "num_attention_heads": 3, "seq_len": 40,
    }  # fmt: skip
    config = hf.Pix2StructConfig(text_config=text, vision_config=vision)
    model = hf.Pix2StructForConditionalGeneration(config)
    model.generation_config.use_cache = True
    return model


def _vision(decoder: str) -> PreTrainedModel:
    encoder = hf.ViTConfig(
        hidden_size=18, num_hidden_layers=1, num_attention_heads=3, intermediate_size=31,
        image_size=12, patch_size=4,
    )  # fmt: skip
    if decoder == "trocr":
        config: Any = hf.TrOCRConfig(
            d_model=24, decoder_layers=2, decoder_attention_heads=3, decoder_ffn_dim=31,
            cross_attention_hidden_size=18, **_START,
        )  # fmt: skip
    else:
        kind = hf.BertConfig if decoder == "bert" else hf.RobertaConfig
        config = kind(**_BERT, is_decoder=True, add_cross_attention=True)
    both = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, config)
    for name, value in _START.items():
        if name != "vocab_size":
            setattr(both, name, value)
    return hf.VisionEncoderDecoderModel(both)


def _udop() -> PreTrainedModel:
    config = hf.UdopConfig(**_T5, image_size=8, patch_size=4, max_2d_position_embeddings=20)
    return hf.UdopForConditionalGeneration(config)


BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "Whisper": _whisper,
    "BART": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**_BART, **_POSITIONS)),
    "mBART": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**_BART, **_POSITIONS)),
    "Marian": lambda: hf.MarianMTModel(hf.MarianConfig(**_BART, **_POSITIONS)),
    "Pegasus": lambda: hf.PegasusForConditionalGeneration(hf.PegasusConfig(**_BART, **_POSITIONS)),
    "PegasusX": lambda: hf.PegasusXForConditionalGeneration(
        hf.PegasusXConfig(**_BART, **_POSITIONS, block_size=4, num_global_tokens=2)
    ),
    "M2M100": lambda: hf.M2M100ForConditionalGeneration(hf.M2M100Config(**_BART, **_POSITIONS)),
    "Blenderbot": lambda: hf.BlenderbotForConditionalGeneration(
        hf.BlenderbotConfig(**_BART, **_POSITIONS)
    ),
    "BlenderbotSmall": lambda: hf.BlenderbotSmallForConditionalGeneration(
        hf.BlenderbotSmallConfig(**_BART, **_POSITIONS)
    ),
    "PLBart": lambda: hf.PLBartForConditionalGeneration(hf.PLBartConfig(**_BART, **_POSITIONS)),
    "Speech2Text": _speech_to_text,
    "T5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(**_T5)),
    "mT5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**_T5)),
    "UMT5": lambda: hf.UMT5ForConditionalGeneration(hf.UMT5Config(**_T5)),
    "LongT5": lambda: hf.LongT5ForConditionalGeneration(hf.LongT5Config(**_T5, local_radius=3)),
    "UDOP": _udop,
    "Moonshine": _moonshine,
    "Moonshine, padded heads": lambda: _moonshine(padded=True),
    "SeamlessM4T": lambda: hf.SeamlessM4TForTextToText(
        hf.SeamlessM4TConfig(**_SEAMLESS, **_POSITIONS)
    ),
    "SeamlessM4Tv2": lambda: hf.SeamlessM4Tv2ForTextToText(
        hf.SeamlessM4Tv2Config(**_SEAMLESS, **_POSITIONS)
    ),
    "Pix2Struct": _pix2struct,
    "TrOCR": lambda: _vision("trocr"),
    "BERT": lambda: _vision("bert"),
    "RoBERTa": lambda: _vision("roberta"),
    "LED": lambda: hf.LEDForConditionalGeneration(
        hf.LEDConfig(
            **_BART, attention_window=4, max_encoder_position_embeddings=64,
            max_decoder_position_embeddings=64,
        )
    ),
}  # fmt: skip


def build(name: str) -> PreTrainedModel:
    """Build a family's model, with weights wide enough that scores differ."""
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = BUILDERS[name]().eval()
        with torch.no_grad():
            for each in model.parameters():
                each.add_(torch.randn_like(each) * 0.2)
    return model


def inputs(model: PreTrainedModel, batch: int = 3, rows: int = ROWS) -> dict[str, Tensor]:
    """Make inputs of unequal length for a model; images and sounds are all of one length."""
    draw = torch.Generator().manual_seed(5)
    sound = torch.randn(batch, 40, 8, generator=draw)
    kind = model.config.model_type
    lengths = torch.tensor([rows - i % rows for i in range(0, 2 * batch, 2)])[:batch]
    mask = (torch.arange(rows) < lengths[:, None]).long()
    if kind == "whisper":
        return {"input_features": torch.randn(batch, 8, 22, generator=draw)}
    if kind == "speech_to_text":
        long = (torch.arange(40) < 40 - 9 * torch.arange(batch)[:, None]).long()
        return {"input_features": sound, "attention_mask": long}
    if kind == "moonshine":
        wave = torch.randn(batch, 3000, generator=draw)
        long = (torch.arange(3000) < 3000 - 700 * torch.arange(batch)[:, None]).long()
        return {"input_values": wave, "attention_mask": long}
    if kind == "vision-encoder-decoder":
        return {"pixel_values": torch.randn(batch, 3, 12, 12, generator=draw)}
    if kind == "pix2struct":
        patches = torch.randn(batch, rows, 14, generator=draw)
        patches[..., :2] = torch.randint(1, 5, (batch, rows, 2), generator=draw).float()
        return {"flattened_patches": patches, "attention_mask": mask}
    ids = torch.randint(4, VOCABULARY, (batch, rows), generator=draw)
    if kind == "udop":
        boxes = torch.rand(batch, rows, 4, generator=draw)
        picture = torch.randn(batch, 3, 8, 8, generator=draw)
        return {"input_ids": ids, "attention_mask": mask, "bbox": boxes, "pixel_values": picture}
    return {"input_ids": ids.masked_fill(mask == 0, 1), "attention_mask": mask}
