"""The shape of an encoder-decoder, frozen: everything needed to build one with no weights."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from crossattention.argument import check_number, check_size
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
            check_size(name, getattr(self, name), 1, "set it")
        if self.width % self.heads:
            given = f"width {self.width} over {self.heads} heads"
            raise ContractError(complaint("width", "a multiple of heads", given, "change either"))
        do = "it is the probability that a number is dropped"
        check_number("dropout", self.dropout, "from 0 to 1", do, low=0, high=1)
        self._check_tokens()
        if self.norm not in ("pre", "post"):
            given = describe(self.norm)
            raise ContractError(complaint("norm", '"pre" or "post"', given, "choose one"))
        if self.positions not in ("sinusoidal", "learned"):
            given = describe(self.positions)
            want = '"sinusoidal" or "learned"'
            raise ContractError(complaint("positions", want, given, "choose one"))
        if self.alignment is not None:
            self._check_alignment()

    def _check_tokens(self) -> None:
        names = ("pad", "begin", "end")
        for name in names:
            number = check_size(name, getattr(self, name), 0, "count tokens from 0")
            if number >= self.vocabulary:
                want, do = f"below the vocabulary's {self.vocabulary}", "count tokens from 0"
                raise ContractError(complaint(name, want, str(number), do))
        if len({getattr(self, name) for name in names}) < 3:
            given = f"{self.pad}, {self.begin} and {self.end}"
            want, do = "three different tokens", "a token has one meaning"
            raise ContractError(complaint("pad` and `begin` and `end", want, given, do))

    def _check_alignment(self) -> None:
        given, limits = self.alignment, (self.decoder_layers, self.heads)
        pair = given if isinstance(given, tuple | list) and len(given) == 2 else ()
        whole = [isinstance(each, int) and not isinstance(each, bool) for each in pair]
        if not pair or not all(whole) or not all(
            0 <= each < limit for each, limit in zip(pair, limits, strict=True)
        ):  # fmt: skip
            want = f"(layer, head) below {limits}"
            raise ContractError(complaint("alignment", want, describe(given), "count from 0"))
        object.__setattr__(self, "alignment", tuple(pair))

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
        return cls(**fields)
