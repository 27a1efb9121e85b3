"""openai-whisper's cross-attention: one encoder output, read by every beam of its clip.

    value[b, h] = softmax(q·k · d^-½) v,   k and v of clip  b // beams

Keys and values are made once a decode, laid out by heads, and kept where whisper keeps them: in the
`kv_cache` that it passes along. Whisper broadcasts one clip over its beams and fails with more.
Paper: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision".
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from crossattention.adapters.parts.heads import pose
from crossattention.adapters.parts.named import check_kind, kind_of
from crossattention.adapters.parts.replaced import Replaced, Replacing, check_replaceable
from crossattention.attention.attend import read
from crossattention.errors import ContractError, complaint
from crossattention.kernels.contract import Score
from crossattention.nn.form import check_form
from crossattention.owner import Owner

KINDS = (("whisper.model", "MultiHeadAttention", ("x", "xa", "mask", "kv_cache")),)


class WhisperForward(Replaced):
    """The forward of an adopted attention module of whisper."""

    def __call__(
        self,
        x: Tensor,
        xa: Tensor | None = None,
        mask: Tensor | None = None,
        kv_cache: dict[Any, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Read; arguments and results are the class's."""
        if xa is None:
            answer: tuple[Tensor, Tensor | None] = self.stock(x, xa, mask, kv_cache)
            return answer
        module: Any = self.module
        key, value = self._kept(xa, kv_cache)
        b, m = x.shape[0], key.shape[0]
        if m == 0 or b % m:
            want = f"a multiple of the {m} clips"
            do = "put the beams of each clip one after another"
            raise ContractError(complaint("x", want, f"{b} sequences", do))
        query = module.query(x)
        if not module.use_sdpa:  # the scores themselves are asked for
            clip = slice(None) if b == m else Owner.shared(m, b // m, x.device).index
            flat = (each.transpose(1, 2).flatten(2)[clip] for each in (key, value))
            read_value, scores = module.qkv_attention(query, *flat, mask)
            return module.out(read_value), scores
        asked = query.unflatten(-1, (module.n_head, -1)).transpose(1, 2)  # -> [b, h, t, d]
        owner = None if b == m else Owner.shared(m, b // m, x.device)
        problem = pose(asked, (key, value), None, Score(key.shape[-1] ** -0.5), owner=owner)
        found = read(problem).value.transpose(1, 2).flatten(2)  # [b, h, t, d] -> [b, t, c]
        return module.out(found), None

    def _kept(self, xa: Tensor, kv_cache: dict[Any, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Keys and values [m, h, s, d] of the clips, made once for each cache."""
        module: Any = self.module
        maps = (module.key, module.value)
        if kv_cache is None:
            return self._split(module.key(xa)), self._split(module.value(xa))
        if any(each not in kv_cache for each in maps):
            for each in maps:  # whisper's hooks see the call and keep its result, which goes
                heads = self._split(each(xa)).contiguous()  # many reads lie ahead
                kv_cache[each] = heads.transpose(1, 2)  # [m, h, s, d] -> [m, s, h, d]
        key, value = (self._split(kv_cache[each]) for each in maps)
        return key, value

    def _split(self, rows: Tensor) -> Tensor:
        """Give rows [m, s, c] or [m, s, h, d] as [m, h, s, d]."""
        heads: Any = self.module.n_head
        split = rows.unflatten(-1, (heads, -1)) if rows.dim() == 3 else rows
        return split.transpose(1, 2)


class WhisperAttention(Replacing):
    """Adopt the attention modules of openai-whisper.

    >>> WhisperAttention().knows(nn.Linear(2, 2))
    False
    """

    kind = "openai-whisper"
    answers = WhisperForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is one of them."""
        return kind_of(module, KINDS) is not None

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if its class has changed, or the raw form is asked for."""
        check_kind(module, KINDS)
        check_replaceable(module)
        reasons = ["whisper keeps keys and values in a cache of its own"]
        check_form(form, reasons)
