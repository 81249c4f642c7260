"""Fixtures of the order tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.order.lane import Lane


@pytest.fixture
def lane(database: str) -> Iterator[Lane]:
    made = Lane(database)
    yield made
    made.close()
