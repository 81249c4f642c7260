"""Which app is tested, and the ledger's own tables in the test database."""

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from examples.github_ledger.ledger import create_tables
from harness.store.database import with_driver


@pytest.fixture(scope="session")
def harness_app() -> str:
    """As for `celery -A`. A project with one app says it in pytest's configuration instead."""
    return "examples.github_ledger.app:app"


@pytest.fixture(scope="session", autouse=True)
def tables(harness_database_url: str) -> None:
    """Once a session, committed: what the tests write to them is rolled back."""
    create_tables(create_engine(with_driver(harness_database_url), poolclass=NullPool))
