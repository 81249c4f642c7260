"""What only a real worker shows: processes that die. It commits, so each test has an account and an id of its own."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from examples.github_ledger.app import receive
from examples.github_ledger.ledger import Account, open_account
from harness.store.database import with_driver
from harness.testing import Worker


@pytest.fixture
def committed(harness_database_url: str) -> Iterator[Session]:
    engine = create_engine(with_driver(harness_database_url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        yield session


def test_deliveries_and_a_killed_process(harness_worker: Worker, committed: Session) -> None:
    repository, booked, unknown = (f"{name}-{uuid4()}" for name in ("octo/repo", "delivery", "delivery"))
    open_account(committed, repository)
    committed.commit()
    payload = {"repository": {"full_name": repository}, "sender": {"login": "octocat"}}

    # The process is killed after the work, before its COMMIT: the next try books it, and a third copy does not.
    killed = harness_worker.fail("before_commit", "kill_process", job_id=booked)
    receive(booked, "push", payload)
    harness_worker.wait(booked, "done")
    assert killed.fired == 1
    receive(booked, "push", payload)

    receive(unknown, "push", payload | {"repository": {"full_name": "octo/elsewhere"}})
    letter = harness_worker.wait_dead(unknown, reason="permanent", error="no account")
    assert letter.attempts == 1
    assert committed.get_one(Account, repository).activities == 1
