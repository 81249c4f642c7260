"""BEGIN travels with the fence, behind psycopg2's back: what a handler does is in that transaction all the same."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg2
import pytest
from psycopg2.extensions import TRANSACTION_STATUS_IDLE, TRANSACTION_STATUS_INTRANS
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.failure import Failure
from harness.core.message import Message
from harness.core.outcome import Completed, Duplicate
from harness.process.copy import Copy
from harness.process.failed import Failed
from harness.process.spec import Limits
from harness.process.work import work
from harness.store.database import Database
from harness.store.driver import first_row
from harness.store.inbox import Arrival
from harness.store.store import Store
from tests.services import run_sql

MESSAGE = Message(b"{}", "application/json", "utf-8", {}, {}, "q")


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    run_sql(database, "CREATE TABLE effects (n int)")
    made = Database(database)
    yield made
    made.dispose()


@pytest.fixture
def run(db: Database) -> Callable[..., Any]:
    """Runs a handler as the job `id`."""

    def run(id_: str, handler: Callable[[Session], Any]) -> Any:
        copy = Copy(Arrival("s", "s/t", "t", id_, MESSAGE))
        return work(db, Store.of("core"), copy, lambda session, job: handler(session), Limits(fence_wait=0.3))

    return run


def effects(url: str) -> int:
    return int(str(run_sql(url, "SELECT count(*) FROM effects")[0][0]))


def insert(session: Session) -> None:
    session.execute(text("INSERT INTO effects VALUES (1)"))


def raw(session: Session) -> Any:
    return session.connection().connection.dbapi_connection


def test_commits_once_and_leaves_the_connection_as_it_was(run: Callable[..., Any], db: Database, database: str) -> None:
    seen: list[Any] = []

    def handler(session: Session) -> None:
        insert(session)
        seen.append(raw(session))

    assert run("a", handler) == Completed(None)
    assert isinstance(run("a", handler), Duplicate)
    assert effects(database) == 1
    [connection] = seen
    assert not connection.autocommit
    assert connection.get_transaction_status() == TRANSACTION_STATUS_IDLE


def test_a_failed_handler_leaves_nothing(run: Callable[..., Any], database: str) -> None:
    def handler(session: Session) -> None:
        insert(session)
        raise LookupError

    with pytest.raises(Failed):
        run("a", handler)
    assert effects(database) == 0
    assert run("a", insert) == Completed(None)


@pytest.mark.parametrize("executed", [True, False])
def test_cursors_with_a_name(executed: bool, run: Callable[..., Any], database: str) -> None:
    def handler(session: Session) -> int:
        insert(session)
        if not executed:
            raw(session).cursor("unused")
            return 3
        rows = session.execute(
            text("SELECT generate_series(1, 3)"), execution_options={"stream_results": True, "max_row_buffer": 1}
        )
        found = len(rows.all())
        insert(session)
        return found

    assert run("a", handler) == Completed(3)
    assert effects(database) == (2 if executed else 1)
    assert isinstance(run("a", handler), Duplicate)


def test_a_large_object(run: Callable[..., Any], database: str) -> None:
    def handler(session: Session) -> int:
        large = raw(session).lobject(mode="wb")
        large.write(b"x")
        return int(large.oid)

    result = run("a", handler).result
    assert run_sql(database, "SELECT count(*) FROM pg_largeobject_metadata WHERE oid = %s", result) == [(1,)]


def test_nothing_commits_by_itself_after_the_handler_has_rolled_back(run: Callable[..., Any], database: str) -> None:
    def handler(session: Session) -> None:
        raw(session).rollback()
        assert not raw(session).autocommit
        raw(session).cursor().execute("INSERT INTO effects VALUES (1)")

    with pytest.raises(Failed) as failed:
        run("a", handler)
    assert not isinstance(failed.value.error, Failure)
    assert "has ended while the handler ran" in str(failed.value.error)
    assert effects(database) == 0


def test_an_error_is_sqlalchemys_and_the_transaction_can_be_rolled_back(db: Database) -> None:
    with db.engine.connect() as connection:
        connection.begin()
        with pytest.raises(DBAPIError) as failed:
            first_row(connection, "SELECT 1/%(by)s", {"by": 0})
        assert isinstance(failed.value.orig, psycopg2.errors.DivisionByZero)
        assert not failed.value.connection_invalidated
        connection.rollback()
        assert first_row(connection, "SELECT %(n)s", {"n": 1}) == (1,)
        assert connection.connection.dbapi_connection.get_transaction_status() == TRANSACTION_STATUS_INTRANS  # type: ignore[union-attr]


def test_a_lost_connection_is_invalidated(db: Database, database: str) -> None:
    with db.engine.connect() as connection:
        pid = connection.connection.dbapi_connection.info.backend_pid  # type: ignore[union-attr]
        run_sql(database, "SELECT pg_terminate_backend(%s, 5000)", pid)
        with pytest.raises(DBAPIError) as failed:
            first_row(connection, "SELECT 1", {})
        assert failed.value.connection_invalidated
        assert connection.invalidated
    with db.begin() as session:
        assert session.scalar(text("SELECT 1")) == 1


def test_the_isolation_level_of_a_connection_is_in_its_begin(db: Database) -> None:
    with db.engine.connect() as connection:
        connection.execution_options(isolation_level="SERIALIZABLE")
        assert first_row(connection, "SHOW transaction_isolation", {}) == ("serializable",)
        connection.rollback()
