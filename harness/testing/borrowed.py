"""A `Database` on a transaction that somebody else has begun: what the harness would commit becomes a savepoint.

The loan stands below SQLAlchemy, in the driver's place, so that every line of the product's own runs as in a worker:
BEGIN is SAVEPOINT, COMMIT is RELEASE, ROLLBACK is ROLLBACK TO, and the guard of the handler's transaction is there.
"""

import itertools
from typing import Any

from psycopg2.extensions import TRANSACTION_STATUS_IDLE
from psycopg2.extensions import connection as PgConnection
from psycopg2.extensions import cursor as PgCursor
from sqlalchemy import Connection, Engine, event
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from harness.core.errors import UsageError
from harness.store.database import Database
from harness.store.guard import Failing, GuardedCursor, refuse

_numbers = itertools.count(1)
#: A COMMIT also asks the constraints that were put off until then.
_CHECK = (
    "SAVEPOINT harness_check; SET CONSTRAINTS ALL IMMEDIATE; "
    "ROLLBACK TO SAVEPOINT harness_check; RELEASE SAVEPOINT harness_check; "
)


class Borrowed(Database):
    """The harness's database on `bind`, a Session or Connection of SQLAlchemy over psycopg2, in a transaction.

    Raises UsageError for another driver and for AUTOCOMMIT.
    """

    def __init__(self, bind: Session | Connection) -> None:
        connection = bind.connection() if isinstance(bind, Session) else bind
        raw: Any = connection.connection.dbapi_connection
        if not isinstance(raw, PgConnection):
            raise UsageError(
                f"The session of the test speaks to PostgreSQL through {type(raw).__module__.split('.')[0]}, but a job "
                "gets a session over psycopg2, and both must be one transaction. Make the test's engine with "
                "postgresql+psycopg2://…, or use the fixture harness_session."
            )
        if raw.autocommit:
            raise UsageError(
                "The test's connection is in AUTOCOMMIT, so what a job writes could not be rolled back. Give the test "
                "a connection in a transaction."
            )
        self.url = connection.engine.url
        with raw.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            (usual,) = cursor.fetchone() or ("0",)
        pool = NullPool(lambda: _Loan(raw), dialect=connection.dialect)  # type: ignore[arg-type]
        self.engine = Engine(pool, connection.dialect, self.url)

        @event.listens_for(self.engine, "connect")
        def remember(loan: Any, record: Any) -> None:
            record.info["lock_timeout"] = usual

    def forked(self) -> None:
        """Nothing: it is not ours."""

    def dispose(self) -> None:
        """Nothing: it is not ours."""


class _Loan(Failing):
    """The driver's connection as the product sees it; see `harness.store.guard.GuardedConnection`."""

    at_work = False
    ended = False

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._savepoint = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    @property
    def info(self) -> "_Info":
        return _Info(TRANSACTION_STATUS_IDLE if not self._savepoint else self._raw.info.transaction_status)

    def cursor(self, *args: Any, **kwargs: Any) -> "_LoanCursor":
        cursor: _LoanCursor = self._raw.cursor(*args, **(kwargs | {"cursor_factory": _LoanCursor}))
        cursor.loan = self
        return cursor

    def first(self, sql: str, parameters: dict[str, Any]) -> Any:
        """Run a statement; its first row or None."""
        with self.cursor() as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchone()

    def begin(self) -> None:
        """Called before every statement, as the driver sends BEGIN before the first one."""
        if not self._savepoint:
            self._savepoint = f"harness_{next(_numbers)}"
            self._send(f"SAVEPOINT {self._savepoint}")

    def commit(self) -> None:
        if self.at_work:
            refuse("commit its connection")
        self.failed = None
        if self._savepoint:
            self._send(f"{_CHECK}RELEASE SAVEPOINT {self._savepoint}")
            self._savepoint = ""

    def rollback(self) -> None:
        self.ended, self.failed = True, None
        if self._savepoint:
            self._send(f"ROLLBACK TO SAVEPOINT {self._savepoint}; RELEASE SAVEPOINT {self._savepoint}")
            self._savepoint = ""

    def set_isolation_level(self, level: Any) -> None:
        """The transaction has begun: its level is the test's choice."""

    def close(self) -> None:
        if not self._raw.closed:
            self.rollback()

    def _send(self, statement: str) -> None:
        with self._raw.cursor(cursor_factory=PgCursor) as cursor:
            cursor.execute(statement)


class _Info:
    def __init__(self, transaction_status: int) -> None:
        self.transaction_status = transaction_status


class _LoanCursor(GuardedCursor):
    loan: _Loan

    @property
    def connection(self) -> Any:  # type: ignore[override]
        """The loan, for the guard and whoever else asks a cursor for its connection."""
        return self.loan

    def execute(self, query: Any, vars: Any = None) -> None:
        self.loan.begin()
        super().execute(query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        self.loan.begin()
        super().executemany(query, vars_list)
