"""timm's `AttentionPoolLatent`: latent queries that are the same for every image.

    x = W_o · attend(norm(W_q l), norm(W_k patches), W_v patches) + b_o,   output = x + mlp(norm(x))

As in SigLIP's head, the latents are projected and folded once a call for the whole batch; a norm
on keys stands between, so with one the patches are projected. It is told by its name and by what
it is made of, whichever package it comes from.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from crossattention.adapters.parts.heads import Heads
from crossattention.adapters.parts.masks import Masks, fits
from crossattention.adapters.parts.replaced import (
    Replaced,
    Replacing,
    check_replaceable,
    check_takes,
)
from crossattention.errors import ContractError, complaint
from crossattention.nn.form import check_form
from crossattention.nn.raw import Affine, is_watched
from crossattention.nn.sizes import Sizes

MADE_OF = (
    "latent", "latent_len", "num_heads", "head_dim", "scale", "pos_embed", "pool", "fused_attn",
    "q", "kv", "q_norm", "k_norm", "proj", "proj_drop", "norm", "mlp",
)  # fmt: skip


class LatentPoolForward(Replaced):
    """The forward of an adopted `AttentionPoolLatent`."""

    def __call__(self, x: Tensor, attn_mask: Tensor | None = None) -> Tensor:
        """Pool rows `[b, s, c]` into `[b, c]`, or `[b, n, c]`; arguments are the class's."""
        pool: Any = self.module
        b, s, _ = x.shape
        masked = attn_mask is not None and attn_mask.is_floating_point()
        if not (
            _is_plain(pool)
            and fits(attn_mask, (b, pool.num_heads, pool.latent_len, s))
            and (pool.fused_attn or attn_mask is None or masked)
        ):
            answer: Tensor = self.stock(x, attn_mask)
            return answer
        rows = x if pool.pos_embed is None else x + pool.pos_embed[None].to(x.dtype)
        asked = pool.q(pool.latent).unflatten(-1, (pool.num_heads, -1))  # -> [1, n, h, d]
        asked = pool.q_norm(asked.transpose(1, 2))  # -> [1, h, n, d]
        posed = _heads(pool).pose(asked, rows, masks=Masks.seen(attn_mask), form=self.form)
        read = pool.proj_drop(pool.proj(posed.values().transpose(1, 2).flatten(2)))
        output: Tensor = read + pool.mlp(pool.norm(read))
        if pool.pool == "token":
            return output[:, 0]
        return output.mean(1) if pool.pool == "avg" else output


class LatentPool(Replacing):
    """Adopt each `AttentionPoolLatent`.

    >>> LatentPool().knows(nn.Linear(2, 2))
    False
    """

    kind = "AttentionPoolLatent (timm)"
    answers = LatentPoolForward

    def knows(self, module: nn.Module) -> bool:
        """Whether a module is called that."""
        return type(module).__name__ == "AttentionPoolLatent"

    def check(self, module: nn.Module, form: str) -> None:
        """Raise if it is made of something else, or cannot be read in this form."""
        check_takes(type(module), ("x", "attn_mask"))
        check_replaceable(module)
        missing = [name for name in MADE_OF if not hasattr(module, name)]
        if missing:
            do = "use a version of timm that this one was written for"
            want = f"made of {', '.join(MADE_OF)}"
            raise ContractError(complaint("module", want, f"one without {missing}", do))
        head: Any = module
        reasons = _heads(head).refusals() if _is_plain(head) else ["`kv` is no plain nn.Linear"]
        check_form(form, reasons)


def _is_plain(pool: Any) -> bool:
    """Whether both maps can be told apart in `kv`: nothing watches it, and it is a plain one."""
    return type(pool.kv) is nn.Linear and not is_watched(pool.kv)


def _heads(pool: Any) -> Heads:
    """Take keys' and values' maps from `kv`, whose rows hold the keys' first."""
    key, value = pool.kv.weight.chunk(2)  # [2c, c] -> 2 of [c, c]
    biases = (None, None) if pool.kv.bias is None else pool.kv.bias.chunk(2)
    h, d, c = pool.num_heads, pool.head_dim, pool.kv.in_features
    sizes = Sizes(c, h, h, d, d, (c, c))
    maps = Affine(key, biases[0]), Affine(value, biases[1])
    return Heads(*maps, sizes, pool.scale, key_norm=pool.k_norm)
