"""Does an adopted model write what it wrote before? Every family by every setting, in each form.

A difference is allowed only where the two best scores of the stock model were within 1e-5, and is
counted then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.run import Run
from crossattention.adapters import adopted

SETTINGS: dict[str, dict[str, object]] = {
    "greedy": {},
    "2 beams": {"num_beams": 2},
    "5 beams, 3 returned": {"num_beams": 5, "num_return_sequences": 3},
    "3 samples": {"do_sample": True, "num_return_sequences": 3},
    "beam samples": {"do_sample": True, "num_beams": 3},
    "no cache": {"num_beams": 2, "use_cache": False},
    "static cache": {"num_beams": 2, "cache_implementation": "static"},
}


def rows(run: Run) -> Iterator[dict[str, object]]:
    """Compare every family's tokens and scores, setting by setting, batch 1 and 3."""
    if run.peer("transformers") is None:
        return
    from benchmarks.same_generation import differences, generate, tied
    from benchmarks.tiny_models import BUILDERS, build, inputs

    for name in list(BUILDERS)[:: 12 if run.quick else 1]:
        model = build(name)
        for label, settings in SETTINGS.items():
            tried = ties = 0
            found: list[str] = []
            for batch in (1, 3):
                given = inputs(model, batch)
                stock = generate(model, given, settings)
                for form in ("projected", "raw", "auto"):
                    with adopted(model, form):
                        ours = generate(model, given, settings)
                    tried += 1
                    ties += tied(stock.scores)
                    found += differences(stock, ours)
                again = generate(model, given, settings)
                found += ["released: " + each for each in differences(stock, again, 0.0)]
            yield {
                "case": f"{name}, {label}", "tried": tried, "near_ties": ties,
                "differ": len(found), "where": "; ".join(found) or "-",
            }  # fmt: skip


def summary(rows: Sequence[dict[str, object]]) -> dict[str, object]:
    """Count what was compared, and what differed."""
    names = ("tried", "near_ties", "differ")
    return {name: sum(int(str(row[name])) for row in rows) for name in names}
