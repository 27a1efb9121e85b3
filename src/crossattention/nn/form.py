"""Choose the form of a memory by what reading it will cost over its life.

    projected   s·g·(c_k·d + c_v·e) once        + N·s·h·(d + e)
    raw         N·h·(c_k·d + c_v·e)             + N·s·h·(c_k + c_v)

in multiply-adds for one memory, where N counts the query rows that will ever read it. Raw wins
while N is small (about c / h for long memories), projected afterwards.
"""

from __future__ import annotations

from crossattention.errors import ContractError, complaint, describe

FORMS = ("auto", "projected", "raw")


def form_costs(
    queries: int, rows: int, heads: tuple[int, int], head_widths: tuple[int, int],
    memory_widths: tuple[int, int],
) -> dict[str, int]:  # fmt: skip
    """Count the multiply-adds of each form for one memory.

    Args:
        queries: N. rows: s. heads: (h, g). head_widths: (d, e). memory_widths: (c_k, c_v).

    >>> form_costs(1, 100, (8, 8), (64, 64), (512, 512))
    {'projected': 52531200, 'raw': 1343488}
    """
    (h, g), (d, e), (c_k, c_v) = heads, head_widths, memory_widths
    maps = c_k * d + c_v * e
    return {
        "projected": rows * g * maps + queries * rows * h * (d + e),
        "raw": queries * h * maps + queries * rows * h * (c_k + c_v),
    }


def choose_form(form: str, costs: dict[str, int], refusals: list[str]) -> str:
    """Take the form that was named, or the cheaper one that is not refused.

    Args:
        form: "auto", "projected" or "raw".
        costs: from `form_costs`.
        refusals: why the raw form cannot serve this layer, in words.
    Raises:
        ContractError: an unknown form, or "raw" where it is refused.

    >>> choose_form("auto", {"projected": 5, "raw": 3}, [])
    'raw'
    """
    if form not in FORMS:
        names = ", ".join(repr(each) for each in FORMS)
        raise ContractError(complaint("form", f"one of {names}", describe(form), "choose one"))
    if form == "raw" and refusals:
        do = 'pass form="projected", or "auto"'
        raise ContractError(complaint("form", "one the layer can take", "; ".join(refusals), do))
    if form == "auto":
        return "raw" if not refusals and costs["raw"] < costs["projected"] else "projected"
    return form
