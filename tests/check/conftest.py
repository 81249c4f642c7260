from collections.abc import Iterator

import pytest

from tests.services import Servers


@pytest.fixture(scope="module")
def sound_database(servers: Servers) -> Iterator[str]:
    """A migrated database that the tests of a module only look at."""
    url = servers.databases().make()
    yield url
    servers.databases().drop(url)
