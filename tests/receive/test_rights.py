"""A role of the database that may not do what a receiver does: nothing is acknowledged, and it says what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy.engine import make_url

from harness.store.grants import grants
from tests.receive.running import Receiver, message
from tests.worker.running import State, until
from tests.worker.wires import Raw, Wires


@pytest.fixture
def role(database: str) -> Iterator[str]:
    """A role that may connect, and no more."""
    state, name = State(database), f"receiver_{uuid4().hex[:12]}"
    state.sql(f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    yield name
    state.sql(f"DROP OWNED BY {name}")
    state.sql(f"DROP ROLE {name}")
    state.close()


def test_a_role_without_rights(broker_url: str, database: str, role: str, tmp_path: Path) -> None:
    state, wires = State(database), Wires(broker_url, "orders")
    url = make_url(database).set(username=role, password="x").render_as_string(hide_password=False)
    receiver = Receiver(broker_url, url, tmp_path / "log", "orders")
    wires.send(message("o1"))
    wires.send(Raw(b"garbage"))
    try:
        # Not even a look at the tables.
        assert receiver.launch().wait(60) == 1
        assert "permission denied for schema core" in receiver.text()
        assert f"harness migrate --grants {role}" in receiver.text()
        # It may look, and not write: the messages stay in its hand.
        state.sql(f"GRANT USAGE ON SCHEMA core TO {role}")
        state.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA core TO {role}")
        receiver.launch()
        until(lambda: receiver.says("the database takes nothing in, holding"), 60)
        assert receiver.says("permission denied for")
        assert receiver.says("harness migrate --grants ROLE")
        time.sleep(6)
        assert receiver.says("the database takes nothing in, holding") < 5, "no hot loop"
        assert (_count(state, "inbox"), _count(state, "dead_letters")) == (0, 0)
        assert receiver.alive
        assert not receiver.says("holding 3 messages"), "what the broker gives again is in its hand already"
        for statement in grants("core", role):
            state.sql(statement)
        until(lambda: (_count(state, "inbox"), _count(state, "dead_letters")) == (1, 1), 60, "it goes on by itself")
        wires.empty(60)
        assert receiver.stop() == 0
        assert "Traceback" not in receiver.text()
    finally:
        receiver.kill()
        wires.close()
        state.close()


def _count(state: State, table: str) -> int:
    return int(state.sql(f"SELECT count(*) FROM core.{table}")[0][0])
