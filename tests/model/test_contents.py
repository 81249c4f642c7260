"""One id, two contents: the design keeps every promise; each known-bad variant breaks the one that it should."""

from dataclasses import replace

import pytest

from tests.model.contents import BAD, DESIGN, Variant, World, search


@pytest.mark.parametrize("world", DESIGN, ids=lambda world: world.name)
def test_the_design_keeps_every_promise(world: World) -> None:
    broken, states, way = search(world)
    assert not broken, "\n".join([broken, *way])
    assert states > 2_000, "the world is too small to mean anything"


@pytest.mark.parametrize(("world", "promise"), BAD, ids=[world.name for world, _ in BAD])
def test_a_known_bad_variant_breaks_its_promise(world: World, promise: str) -> None:
    broken, _, way = search(world)
    assert broken == promise
    assert len(way) > 2
    assert not search(replace(world, variant=Variant()))[0], "the design survives the same world"
