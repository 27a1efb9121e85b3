"""The families that are known, and all in which they differ: a table.

Their generation, caches and attention functions are transformers' own and alike. What differs is
how a cross-attention module is called and found, how it names its projections, and whether it
hands its attention to transformers' interface or computes it in place (`closed`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """How a cross-attention module names its parts.

    Attributes:
        query, key, value, output: its projections; output None where the module above applies it.
        width: the attribute that holds the width of one head.
        memory: the argument by which `forward` is given the memory.
        closed: it computes attention in place, so its `forward` is taken over.
        triple: its `forward` returns the cache as well.
    """

    query: str = "q_proj"
    key: str = "k_proj"
    value: str = "v_proj"
    output: str | None = "out_proj"
    width: str = "head_dim"
    memory: str = "key_value_states"
    closed: bool = False
    triple: bool = False


@dataclass(frozen=True)
class Family:
    """One row of the table.

    Attributes:
        name: as people call it.
        kind: the `model_type` of the config, of the decoder's where a model joins two.
        attention: the class of its cross-attention modules.
        place: how the path of such a module ends.
        layout: how it names its parts.
    """

    name: str
    kind: str
    attention: str
    place: str
    layout: Layout


_BART = Layout()
_CLOSED, _LED = Layout(closed=True), Layout(closed=True, triple=True)
_T5 = Layout("q", "k", "v", "o", width="key_value_proj_dim")
_UMT5 = dataclasses.replace(_T5, memory="encoder_hidden_states")
_SEAMLESS = Layout(memory="encoder_hidden_states")
_PIX = Layout("query", "key", "value", "output", width="key_value_proj_dim")
_BERT = Layout("query", "key", "value", None, "attention_head_size", "encoder_hidden_states")
_MOONSHINE = Layout(output="o_proj")

_ATTN, _T5_PLACE, _CROSS = "encoder_attn", "EncDecAttention", "cross_attention"
_BERT_PLACE = "crossattention.self"
FAMILIES: dict[str, Family] = {
    row[1]: Family(*row)
    for row in (
        ("Whisper", "whisper", "WhisperAttention", _ATTN, _BART),
        ("BART", "bart", "BartAttention", _ATTN, _BART),
        ("mBART", "mbart", "MBartAttention", _ATTN, _BART),
        ("Marian", "marian", "MarianAttention", _ATTN, _BART),
        ("Pegasus", "pegasus", "PegasusAttention", _ATTN, _BART),
        ("Pegasus-X", "pegasus_x", "PegasusXAttention", _ATTN, _BART),
        ("M2M-100 and NLLB", "m2m_100", "M2M100Attention", _ATTN, _BART),
        ("Blenderbot", "blenderbot", "BlenderbotAttention", _ATTN, _BART),
        ("Blenderbot small", "blenderbot-small", "BlenderbotSmallAttention", _ATTN, _BART),
        ("PLBart", "plbart", "PLBartAttention", _ATTN, _BART),
        ("Speech2Text", "speech_to_text", "Speech2TextAttention", _ATTN, _BART),
        ("T5 and FLAN-T5", "t5", "T5Attention", _T5_PLACE, _T5),
        ("mT5", "mt5", "MT5Attention", _T5_PLACE, _T5),
        ("UMT5", "umt5", "UMT5Attention", _T5_PLACE, _UMT5),
        ("LongT5", "longt5", "LongT5Attention", _T5_PLACE, _T5),
        ("UDOP", "udop", "UdopAttention", _T5_PLACE, _T5),
        ("Moonshine", "moonshine", "MoonshineAttention", _ATTN, _MOONSHINE),
        ("SeamlessM4T", "seamless_m4t", "SeamlessM4TAttention", _CROSS, _SEAMLESS),
        ("SeamlessM4T v2", "seamless_m4t_v2", "SeamlessM4Tv2Attention", _CROSS, _SEAMLESS),
        (
            "Pix2Struct",
            "pix2struct",
            "Pix2StructTextAttention",
            "encoder_decoder_attention.attention",
            _PIX,
        ),
        ("TrOCR", "trocr", "TrOCRAttention", _ATTN, _CLOSED),
        ("LED", "led", "LEDDecoderAttention", _ATTN, _LED),
        ("BERT as decoder", "bert", "BertCrossAttention", _BERT_PLACE, _BERT),
        ("RoBERTa as decoder", "roberta", "RobertaCrossAttention", _BERT_PLACE, _BERT),
    )
}
JOINED = ("vision-encoder-decoder", "speech-encoder-decoder", "encoder-decoder")
