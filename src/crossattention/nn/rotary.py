"""Rotary positions: pairs of a head's numbers turn by an angle that grows with the position.

    (x, y)  ->  (x cos a - y sin a,  y cos a + x sin a),     a = position · base^(-2i / width)

Law: turned query · turned key depends on the difference of their positions alone, so query and key
are both turned, each by the positions of its own stream. Paper: Su et al. 2021, "RoFormer: Enhanced
Transformer with Rotary Position Embedding".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from crossattention.argument import FLOATS, LARGEST, check_number, check_size, check_tensor
from crossattention.errors import ContractError, complaint, describe
from crossattention.window import check_positions


class Rotary(nn.Module):
    """Turn heads by their positions p: pair i of a row by the angle p · base^(-2i/width).

    Args:
        width: how many of a head's d numbers turn, an even number; those after them pass unchanged.
        base: the larger, the slower the last pairs turn.
        pairs: which numbers turn together. "halves": i and i + width/2, as in GPT-NeoX and in
            Hugging Face's Llama. "neighbours": 2i and 2i + 1, as in the paper and in Meta's Llama.
            Weights trained with one are wrong with the other.

    It has no parameters and no buffers. Angles are computed in float64, heads are turned in float32
    or wider and rounded once, so that neither `.half()` nor a late position loses precision.

    >>> rotary = Rotary(width=2)
    >>> heads, quarter = torch.tensor([[[[1.0, 0.0]]]]), torch.tensor([torch.pi / 2])
    >>> rotary(heads, quarter).round().int().tolist()
    [[[[0, 1]]]]
    """

    def __init__(self, width: int, *, base: float = 10000.0, pairs: str = "halves") -> None:
        super().__init__()
        if check_size("width", width, 2, "pass how many numbers of a head turn") % 2:
            do = "numbers turn in pairs"
            raise ContractError(complaint("width", "an even number", describe(width), do))
        want, do = "a number above 0", "10000 is the paper's"
        check_number("base", base, want, do, low=0, high=LARGEST, strictly=True)
        if pairs not in ("halves", "neighbours"):
            want, do = '"halves" or "neighbours"', "choose the pairs that the weights were made for"
            raise ContractError(complaint("pairs", want, describe(pairs), do))
        self.width, self.base, self.pairs = width, float(base), pairs

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Turn `[b, h, t, d]` by `positions`.

        Args:
            heads: queries or keys `[b, h, t, d]`, d at least `width`.
            positions: integers or floats `[t]` or `[b|1, t]`, of the heads' own stream.
        Returns:
            `[b, h, t, d]`, in the dtype of the heads.
        Raises:
            ContractError: heads of another kind or too narrow; positions of another length, batch
                or device, or not finite.
        """
        want, do = f"a float tensor [b, h, t, d], d at least {self.width}", "split the heads first"
        check_tensor("heads", heads, FLOATS, want, do, rank=4)
        if heads.shape[-1] < self.width:
            raise ContractError(complaint("heads", want, describe(heads), do))
        angles = self._angles(heads, positions)
        kind = torch.promote_types(heads.dtype, torch.float32)
        cosine, sine = angles.cos().to(kind), angles.sin().to(kind)
        left, right = self._split(heads[..., : self.width].to(kind))
        turned = self._join(left * cosine - right * sine, right * cosine + left * sine)
        return torch.cat([turned.to(heads.dtype), heads[..., self.width :]], -1)

    def extra_repr(self) -> str:
        """Show the options."""
        return f"width={self.width}, base={self.base}, pairs={self.pairs!r}"

    def _angles(self, heads: Tensor, positions: Tensor) -> Tensor:
        """The angle of each pair, [b|1, 1, t, width/2]."""
        checked = check_positions("positions", positions)
        b, _, t, _ = heads.shape
        if checked.shape[0] not in (1, b) or checked.shape[1] != t or (
            checked.device != heads.device
        ):  # fmt: skip
            want = f"[t] or [b|1, t] with b = {b}, t = {t}, on {heads.device}"
            do = "queries and keys have positions of their own"
            raise ContractError(complaint("positions", want, describe(positions), do))
        turn = torch.arange(0, self.width, 2, dtype=torch.float64, device=heads.device)
        speed = self.base ** (-turn / self.width)
        return checked.double()[:, None, :, None] * speed  # [b|1, t] -> [b|1, 1, t, width/2]

    def _split(self, heads: Tensor) -> tuple[Tensor, Tensor]:
        """The two numbers of every pair, each [b, h, t, width/2]."""
        if self.pairs == "halves":
            left, right = heads.chunk(2, -1)
            return left, right
        return heads[..., 0::2], heads[..., 1::2]

    def _join(self, left: Tensor, right: Tensor) -> Tensor:
        """Put the pairs back where they were, [b, h, t, width]."""
        if self.pairs == "halves":
            return torch.cat([left, right], -1)
        return torch.stack([left, right], -1).flatten(-2)
