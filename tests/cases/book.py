"""Open the files of cases: one `Case` for each case and each variant, numbers as tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

BOOLEANS = ("visible", "hidden")
FLOATS = (
    "query", "key", "value", "bias", "query_rows", "memory", "value_memory", "w_q", "w_k", "w_v",
    "w_o", "b_q", "b_k", "b_v", "b_o", "upstream", "map", "maps", "output", "lse",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One problem and the right numbers, as the files hold them."""

    id: str
    name: str
    op: str
    source: str
    inputs: dict[str, Any]
    expect: dict[str, Any]
    same_under: list[dict[str, Any]] = field(default_factory=list)
    wrong: Any = None

    def __str__(self) -> str:
        return f"{self.id} {self.name}".replace(" ", "-")

    @property
    def dtypes(self) -> list[torch.dtype]:
        """Every dtype in which the numbers must be right."""
        return [getattr(torch, name) for name in self.inputs["dtype"]]

    def tolerance(self, dtype: torch.dtype) -> float | None:
        """How far a number may be off, relative to max(1, |number|); None: it has its own bound."""
        found = self.expect["tolerance"].get(name_of(dtype))
        return None if found is None else float(found)

    def expected(self, name: str) -> Tensor:
        """Read one expected array; NaN stands where nothing is compared."""
        return array(self.expect[name], self.expect.get("shapes", {}).get(name))

    def gradient(self, name: str, shape: torch.Size) -> Tensor:
        """Read one expected gradient."""
        return array(self.expect["grads"][name], list(shape))

    def tensors(self, dtype: torch.dtype) -> dict[str, Any]:
        """Give the inputs, with arrays as tensors and recipes worked out."""
        return decoded(self.inputs, dtype)


def load(name: str) -> list[Case]:
    """Read one file: cases in order, each followed by its variants."""
    cases = []
    for entry in json.loads(Path(__file__).with_name(f"{name}.json").read_text("utf-8")):
        shared = {"id": entry["id"], "op": entry["op"], "source": entry["source"]}
        same = entry.get("same_under", [])
        first = Case(**shared, name=entry["name"], inputs=entry["inputs"],
                     expect=entry["expect"], same_under=same, wrong=entry.get("wrong"))  # fmt: skip
        cases.append(first)
        for variant in entry.get("variants", []):
            kept = {"dtype": first.inputs["dtype"]} if variant.get("replace") else first.inputs
            cases.append(
                Case(**shared, name=variant["name"], inputs=_over(kept, variant["inputs"]),
                     expect=variant["expect"], same_under=same, wrong=variant.get("wrong"))
            )  # fmt: skip
    return cases


def find(cases: list[Case], name: str) -> Case:
    """Find a case by what it is called."""
    return next(case for case in cases if name in (case.name, case.id))


def name_of(dtype: torch.dtype) -> str:
    """Write a dtype as the files do."""
    return str(dtype).removeprefix("torch.")


def array(numbers: Any, shape: list[int] | None = None) -> Tensor:
    """Turn nested lists into float64; strings are nan, inf and -inf, null is NaN."""
    found = torch.tensor(_numbers(numbers), dtype=torch.float64)
    return found if shape is None else found.reshape(shape)


def decoded(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Turn the arrays of some inputs into tensors; arrays given by shape only are ones."""
    shapes, mixed, found = inputs.get("shapes", {}), inputs.get("mixed", {}), {}
    for name, given in inputs.items():
        if name in FLOATS and given is not None:
            kept = getattr(torch, mixed.get(name, name_of(dtype)))  # narrower than `dtype`: cast up
            kept = torch.promote_types(kept, dtype) if name in mixed else kept
            found[name] = array(given, shapes.get(name)).to(kept)
        elif name in BOOLEANS and given is not None:
            found[name] = torch.tensor(given).reshape(shapes[name])
        elif name not in ("shapes", "mixed", "dtype", "recipe"):
            found[name] = given
    for name, recipe in inputs.get("recipe", {}).items():
        found[name] = from_recipe(recipe, dtype)
    for name, shape in shapes.items():
        if name not in found:
            found[name] = torch.ones(shape, dtype=torch.bool if name in BOOLEANS else dtype)
    return found


def from_recipe(recipe: dict[str, Any], dtype: torch.dtype, sizes: dict[str, int] | None = None,
                rows: list[int] | None = None) -> Tensor:  # fmt: skip
    """Work out an array from its recipe; `sizes` replaces letters, `rows` keeps some of axis 2."""
    shape = [(sizes or {}).get(size, size) for size in recipe["shape"]]
    axes = [torch.arange(size, dtype=torch.float64) for size in shape]
    if rows is not None and shape[2] > 1:
        axes[2] = torch.tensor(rows, dtype=torch.float64)
    weights = recipe["sin"] if "sin" in recipe else recipe["coef"]
    grid = torch.meshgrid(*axes, indexing="ij")
    total = sum((weight * axis for weight, axis in zip(weights, grid, strict=True)),
                torch.zeros(()))  # fmt: skip
    if "sin" in recipe:
        return (recipe["amp"] * torch.sin(total + recipe["phase"])).to(dtype)
    return total % recipe["mod"] != recipe["hide"]


def _over(first: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """A variant's inputs: those of the case with some replaced; null removes one."""
    found = first | change
    kept = {name: x for name, x in first.get("shapes", {}).items() if name not in change}
    found["shapes"] = kept | change.get("shapes", {})
    return {name: given for name, given in found.items() if given is not None}


def _numbers(given: Any) -> Any:
    if isinstance(given, list):
        return [_numbers(each) for each in given]
    return float("nan") if given is None else float(given)
