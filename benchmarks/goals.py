"""What the figures are measured for: a floor that must hold, and a goal beyond it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Goal:
    """What one figure of a summary should reach.

    Attributes:
        question, figure: where the figure stands.
        floor, goal: what must hold, and what is aimed at.
        at_most: whether less is better; otherwise more is.
    """

    question: str
    figure: str
    floor: float
    goal: float
    at_most: bool = False

    def verdict(self, value: float) -> str:
        """Say how far a figure has come: "goal", "floor" or "below the floor"."""
        for name, bound in (("goal", self.goal), ("floor", self.floor)):
            if value <= bound if self.at_most else value >= bound:
                return name
        return "below the floor"

    def __str__(self) -> str:
        """Write floor and goal with the direction."""
        return f"{'≤' if self.at_most else '≥'} {self.floor:g} ({self.goal:g})"


def _times(question: str, floors: dict[str, tuple[float, float]]) -> list[Goal]:
    return [Goal(question, figure, *both) for figure, both in floors.items()]


def _at_most(question: str, floors: dict[str, tuple[float, float]]) -> list[Goal]:
    return [Goal(question, figure, *both, at_most=True) for figure, both in floors.items()]


GOALS = {
    (each.question, each.figure): each
    for each in (
        *_times("grid", {
            "few_queries_float32": (1.8, 2.5), "few_queries_bfloat16": (2.5, 4.0),
            "few_queries_float16": (4.0, 6.0), "other_rows_least": (0.95, 1.1),
            "stream_share_float32": (0.8, 0.9), "stream_share_bfloat16": (0.8, 0.9),
            "stream_share_float16": (0.8, 0.9),
        }),
        *_at_most("grid", {"regret_median": (1.03, 1.01), "regret_95th": (1.15, 1.05)}),
        *_times("pool", {
            "pool, forward_batch_1_against_torch": (20.0, 30.0),
            "pool, forward_batch_8_against_torch": (45.0, 60.0),
            "pool, forward + backward_batch_1_against_torch": (5.0, 10.0),
            "pool, forward + backward_batch_8_against_torch": (5.0, 10.0),
        }),
        *_at_most("choice", {"regret_median": (1.05, 1.02), "regret_worst": (1.3, 1.15)}),
        *_times("loop", {"30_steps": (10.0, 15.0), "100_steps": (25.0, 40.0)}),
        *_times("translate", {
            "batch_32_beams_4_against_CTranslate2 float32": (0.8, 1.2),
            "batch_1_beams_1_against_CTranslate2 float32": (0.45, 1.0),
            "batch_1_beams_4_against_CTranslate2 float32": (0.45, 1.0),
            "batch_32_beams_4_against_Hugging Face Marian": (4.0, 8.0),
        }),
        *_times("train", {"eager_against_torch": (1.1, 1.4), "compiled_against_torch": (1.1, 1.4)}),
        *_at_most("train", {
            "eager_peak_over_torch": (1.0, 1.0), "compiled_peak_over_torch": (1.0, 1.0),
        }),
        *_times("adopt", {
            "Whisper base_batch_4_beams_5_projected_faster": (5.0, 6.0),
            "Whisper base_batch_4_beams_5_CTranslate2 float32_against": (1.0, 1.2),
            "Whisper base_batch_1_beams_5_projected_faster": (1.5, 2.0),
            "Whisper base_batch_1_beams_1_projected_faster": (1.1, 1.3),
            "BART base_batch_4_beams_4_projected_faster": (3.0, 4.0),
            "T5 base, 8,000 rows_batch_1_beams_4_projected_faster": (3.0, 4.0),
            "T5 base, 8,000 rows_batch_1_beams_4_raw_faster": (1.5, 2.0),
        }),
        *_at_most("adopt", {
            "T5 base, 8,000 rows_batch_1_beams_4_projected_cache_over_stock": (0.25, 0.25),
            "T5 base, 8,000 rows_batch_1_beams_4_raw_peak_over_stock": (0.1, 0.05),
        }),
        *_at_most("overhead", {"attend_extra_microseconds": (12.0, 6.0)}),
    )
}  # fmt: skip
