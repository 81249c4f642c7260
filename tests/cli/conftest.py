from collections.abc import Iterator

import pytest

from tests.letters import Place


@pytest.fixture
def place(database: str) -> Iterator[Place]:
    made = Place(database)
    yield made
    made.database.dispose()
