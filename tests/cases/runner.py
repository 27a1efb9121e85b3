"""Run a case along every path that can express it, in each of its dtypes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import crossattention as xa
from cases.book import Case
from cases.judge import judge
from cases.paths import FORMS, KERNELS, LAYERS, Path, expresses, read

GENERIC = ("attend", "causal", "project_attend", "select", "maps", "chunks")
OWN_TEST = {"recipe", "frozen", "layout", "query_positions"}  # inputs that need a test of their own
EVERY_PATH = [Path(form, kernel) for form in FORMS if form != "headless" for kernel in KERNELS]


def every_form(cases: list[Case]) -> list[Any]:
    """Pair each case with each form that can express it."""
    return [
        (case, form)
        for case in cases
        if case.op in GENERIC and not OWN_TEST & {*case.inputs}
        for form in FORMS
        if expresses(form, case)
    ]


def name(value: object) -> str:
    """Name a case or a form in a test's identity."""
    return str(value)


def agree(left: dict[str, Any], right: dict[str, Any], tolerance: float = 1e-10) -> None:
    """Check that two readings give the same output, weights, lse and gradients."""
    for what in ("output", "weights", "lse", "grads"):
        if what in left and what in right:
            torch.testing.assert_close(left[what], right[what], atol=tolerance, rtol=tolerance)


def check(case: Case, form: str) -> None:
    """Judge a case along one form, with every kernel, dtype and setting."""
    ran = set()
    for dtype in case.dtypes:
        for kernel in KERNELS:
            for path, compare in _settings(case, Path(form, kernel)):
                try:
                    found = read(case, dtype, path)
                except xa.NoKernelError:
                    assert kernel == "fused"
                    continue
                found = {n: x for n, x in found.items() if n in compare or n in ("see", "owner")}
                judge(case, found, dtype)
                ran.add(kernel)
    assert ran >= {*KERNELS} - {"fused"}


def _settings(case: Case, path: Path) -> list[tuple[Path, tuple[str, ...]]]:
    """The path itself, and again under each setting that must not matter."""
    everything = ("output", "weights", "lse", "grads")
    found = [(path, everything), (replace(path, grad=False), everything)]
    for setting in case.same_under:
        if "memory_projection" in setting or "layout" in setting:
            continue  # forms of their own
        if path.form not in LAYERS and "dropout" in setting and setting["dropout"]:
            continue  # the functions have no training mode
        known = {n: x for n, x in setting.items() if n != "compare"}
        compare = ("weights",) if "compare" in setting else everything
        found.append((replace(path, **known), compare))
    return found
