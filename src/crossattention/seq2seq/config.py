"""The shape of an encoder-decoder, frozen: everything needed to build one with no weights."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from crossattention.errors import ContractError, complaint, describe


@dataclass(frozen=True)
class Config:
    """Describe an `EncoderDecoder`.

    Attributes:
        vocabulary: joint size of source and target vocabularies.
        width, heads, feed_forward: c, h, and the hidden width of feed-forward parts.
        encoder_layers, decoder_layers: blocks.
        dropout: on embeddings and on what each part adds to the stream.
        positions: "sinusoidal" or "learned".
        norm: "pre" or "post".
        max_length: longest sequence, in tokens.
        pad, begin, end: token numbers.
        alignment: (layer, head) of the decoder head that is shown as alignment, from 0; None: the
            mean of all heads of the layer before the last.

    >>> Config(vocabulary=100, width=64).heads
    4
    """

    vocabulary: int
    width: int = 256
    heads: int = 4
    feed_forward: int = 1024
    encoder_layers: int = 3
    decoder_layers: int = 3
    dropout: float = 0.1
    positions: str = "sinusoidal"
    norm: str = "pre"
    max_length: int = 512
    pad: int = 0
    begin: int = 1
    end: int = 2
    alignment: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "heads", "feed_forward", "encoder_layers",
                     "decoder_layers", "max_length"):  # fmt: skip
            size = getattr(self, name)
            if not isinstance(size, int) or size < 1:
                given = describe(size)
                raise ContractError(complaint(name, "a positive integer", given, "set it"))
        if self.positions not in ("sinusoidal", "learned"):
            given = describe(self.positions)
            want = '"sinusoidal" or "learned"'
            raise ContractError(complaint("positions", want, given, "choose one"))
        if self.alignment is not None:
            object.__setattr__(self, "alignment", tuple(self.alignment))
            layer, head = self.alignment
            if not (0 <= layer < self.decoder_layers and 0 <= head < self.heads):
                want = f"(layer, head) below ({self.decoder_layers}, {self.heads})"
                do = "count from 0"
                raise ContractError(complaint("alignment", want, describe(self.alignment), do))

    def to_json(self) -> str:
        """Write as JSON.

        >>> Config.from_json(Config(vocabulary=7).to_json()) == Config(vocabulary=7)
        True
        """
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Read JSON; unknown or missing fields are an error.

        >>> Config.from_json('{"vocabulary": 7}').vocabulary
        7
        """
        fields: Any = json.loads(text)
        known = {each.name for each in dataclasses.fields(cls)}
        if not isinstance(fields, dict) or set(fields) - known:
            extra = sorted(set(fields) - known) if isinstance(fields, dict) else type(fields)
            do = "was it written by a newer version?"
            raise ContractError(complaint("config", f"made of {sorted(known)}", f"{extra}", do))
        if isinstance(fields.get("alignment"), list):
            fields["alignment"] = tuple(fields["alignment"])
        return cls(**fields)
