"""The design keeps every promise in every interleaving; each known-bad variant breaks the one it should."""

from __future__ import annotations

import pytest

from .search import search
from .spec import World
from .worlds import BAD, DESIGN


@pytest.mark.parametrize("world", DESIGN, ids=lambda world: world.name)
def test_the_design_keeps_every_promise(world: World) -> None:
    result = search(world)
    assert not result.broken, str(result)
    assert result.states > 2_000, "the world is too small to mean anything"
    assert result.quiescent > 0


@pytest.mark.parametrize(("world", "promise"), BAD, ids=[world.name for world, _ in BAD])
def test_a_known_bad_variant_breaks_its_promise(world: World, promise: str) -> None:
    result = search(world, look_for=(promise,))
    assert result.broken == promise, str(result)
    assert len(result.trace) > 1 or promise.startswith("from everywhere"), "a counterexample has a way to it"


@pytest.mark.parametrize(("world", "promise"), BAD, ids=[world.name for world, _ in BAD])
def test_the_design_survives_the_world_that_breaks_the_variant(world: World, promise: str) -> None:
    design = World(**{**vars(world), "variant": type(world.variant)()})
    result = search(design)
    assert not result.broken, str(result)
