"""The order of a key holds in every interleaving; each known-bad variant breaks the promise that it should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .order import BAD, DESIGN, Variant, World, search


@pytest.mark.parametrize("world", DESIGN, ids=lambda world: world.name)
def test_the_design_keeps_every_promise(world: World) -> None:
    broken, states, way = search(world)
    assert not broken, (broken, way)
    assert states > 2_000, "the world is too small to mean anything"


@pytest.mark.parametrize(("world", "promise"), BAD, ids=[world.name for world, _ in BAD])
def test_a_known_bad_variant_breaks_its_promise(world: World, promise: str) -> None:
    broken, _, way = search(world)
    assert broken == promise, way
    assert len(way) > 2, "a counterexample has a way to it"
    assert not search(replace(world, variant=Variant()))[0]
