"""Every family writes the same tokens with the same scores, adopted in either form."""

from __future__ import annotations

import contextlib

import pytest

from benchmarks.same_generation import compare, generate
from benchmarks.tiny_models import BUILDERS, build, inputs
from crossattention.adapters import adopted
from crossattention.adapters.hugging_face.cache import SharedCache
from crossattention.adapters.hugging_face.families import FAMILIES

SETTINGS = {
    "greedy": {},
    "two beams": {"num_beams": 2},
    "five beams, three returned": {"num_beams": 5, "num_return_sequences": 3},
    "samples": {"do_sample": True, "num_return_sequences": 3},
}


@pytest.mark.parametrize("form", ["projected", "raw"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", BUILDERS)
def test_it_writes_the_same(name: str, settings: dict[str, object], form: str) -> None:
    model = build(name)
    assert compare(model, inputs(model), settings, form) == []


@pytest.mark.parametrize("name", BUILDERS)
def test_one_source_of_few_rows_and_without_a_cache(name: str) -> None:
    model = build(name)
    few = 1 if model.config.model_type not in ("udop", "pegasus_x") else 7
    given = inputs(model, batch=1, rows=few)
    assert compare(model, given, {"num_beams": 5}) == []
    assert compare(model, given, {"num_beams": 2, "use_cache": False}) == []


@pytest.mark.parametrize("name", BUILDERS)
def test_the_memory_is_shared_and_as_large_as_stock_over_beams(name: str) -> None:
    model, beams = build(name), 4
    given = inputs(model)
    sizes, shapes = {}, {}
    for form in (None, "projected", "raw"):
        with contextlib.nullcontext() if form is None else adopted(model, form):
            cache = generate(model, given, {"num_beams": beams, "max_new_tokens": 2}).cache
        assert isinstance(cache, SharedCache) is (form is not None)
        layers = cache.cross_attention_cache.layers
        held = {x for layer in layers for x in (layer.keys, layer.values)}
        sizes[form] = sum(x.numel() * x.element_size() for x in held)
        shapes[form] = layers[0].keys.shape
    (_, heads, _, width), (*_, c) = shapes[None], shapes["raw"]
    assert sizes["projected"] * beams == sizes[None]
    assert sizes["raw"] * (2 * len(layers) * beams * heads * width) == sizes[None] * c


def test_every_row_of_the_table_is_tried() -> None:
    kinds = set()
    for name in BUILDERS:
        config = build(name).config
        kinds.add(config.model_type)
        kinds.add(getattr(getattr(config, "decoder", None), "model_type", None))
    assert set(FAMILIES) <= kinds
