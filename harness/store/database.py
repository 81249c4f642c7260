"""The connection to PostgreSQL: one engine per process, and what "away" means."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from weakref import WeakSet

import psycopg2
from sqlalchemy import Engine, create_engine, event, func, literal, select
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session

from harness.core.descriptors import let_go
from harness.core.errors import HarnessError
from harness.store.guard import GuardedConnection

#: SQLSTATE classes and codes that say "the server cannot serve now", not "this job is wrong": connection
#: exceptions, operator intervention, insufficient resources, and a server that is read-only (a standby).
AWAY_CLASSES = ("08", "57P", "53", "58")
AWAY_CODES = ("25006", "25P03", "25P04")
#: serialization_failure and deadlock_detected: PostgreSQL asks for nothing but another try.
AT_ONCE = ("40001", "40P01")

#: Of the harness's own transactions, whatever the database's default: they look again after a lock was waited for.
OWN_ISOLATION = "READ COMMITTED"


class DatabaseAway(HarnessError):
    """PostgreSQL could not be reached, or said that it cannot serve now. No try of the job is spent."""


def sqlstate(error: BaseException) -> str:
    """The five-character SQLSTATE of a database error, or ''."""
    return str(getattr(getattr(error, "orig", None), "pgcode", None) or "")


def means_away(error: BaseException) -> bool:
    """Does this error say that the database is away, rather than that the statement was wrong?"""
    if not isinstance(error, DBAPIError):
        return False
    code = sqlstate(error)
    if code:
        return code.startswith(AWAY_CLASSES) or code in AWAY_CODES
    return error.connection_invalidated or isinstance(error, (OperationalError, InterfaceError))


def with_driver(url: str) -> URL:
    """`url` with psycopg2 as its driver, where it names none; SQLAlchemy's own default is another one."""
    made = make_url(url)
    return made.set(drivername="postgresql+psycopg2") if made.drivername in ("postgresql", "postgres") else made


_databases: "WeakSet[Database]" = WeakSet()


class Database:
    """PostgreSQL for one process.

    `url`: an SQLAlchemy URL. Connections are opened when needed. A process that is forked has none of them.
    """

    def __init__(self, url: str, *, pool_size: int = 1, connect_timeout: int = 5) -> None:
        self.url = with_driver(url)
        self.engine = _engine(self.url, pool_size, connect_timeout)
        self._opened: WeakSet[Any] = WeakSet()
        event.listen(self.engine, "connect", lambda connection, _: self._opened.add(connection))
        _databases.add(self)

    def forked(self) -> None:
        """Forget the parent's connections without closing them: the sessions are the parent's.

        The sockets are let go, too: a transaction would stay open, with its fence, after its process has died, for as
        long as a process that its handler has started.
        """
        opened, self._opened = list(self._opened), WeakSet()
        let_go(_descriptors(opened))
        self.engine.dispose(close=False)

    def dispose(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """A transaction of the harness's own: committed at the end, rolled back on an exception.

        Raises DatabaseAway when PostgreSQL cannot be reached, cannot serve, or wants the transaction tried again.
        """
        try:
            with self.engine.connect() as connection:
                if connection.dialect.default_isolation_level != OWN_ISOLATION:
                    # In the text of BEGIN: it costs no round trip. The handler's transaction keeps the user's default.
                    connection.execution_options(isolation_level=OWN_ISOLATION)
                with Session(connection, expire_on_commit=False) as session, session.begin():
                    yield session
        except DBAPIError as error:
            if means_away(error) or sqlstate(error) in AT_ONCE:
                raise DatabaseAway(str(error.orig or error)) from error
            raise


def _forked() -> None:
    for database in list(_databases):
        database.forked()


def _descriptors(opened: Iterable[Any]) -> Iterator[int]:
    for connection in opened:
        with suppress(psycopg2.Error):  # it is closed
            yield connection.fileno()


os.register_at_fork(after_in_child=_forked)


def _engine(url: Any, pool_size: int, connect_timeout: int) -> Engine:
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=5,
        pool_timeout=connect_timeout,
        # A stale connection shows at BEGIN or at the fence, before the handler: there it is simply tried again,
        # which is cheaper than a ping before every job.
        pool_pre_ping=False,
        connect_args={
            "connection_factory": GuardedConnection,
            "connect_timeout": connect_timeout,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
    )
    event.listen(engine, "connect", _remember_lock_timeout)
    event.listen(engine, "checkin", _give_up_changed)
    return engine


def _remember_lock_timeout(dbapi_connection: Any, record: Any) -> None:
    with dbapi_connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        record.info["lock_timeout"] = cursor.fetchone()[0]
    dbapi_connection.rollback()


def _give_up_changed(dbapi_connection: Any, record: Any) -> None:
    """What a handler has left in the session ends with it. Looked for in its SQL, which costs no round trip."""
    if dbapi_connection is not None and getattr(dbapi_connection, "leaves", False):
        record.invalidate()


def seconds_until(session: Session, moment: datetime) -> float:
    """Seconds from the database's now to `moment`; negative when it is past."""
    return float(session.scalar(select(func.extract("epoch", literal(moment) - func.now()))) or 0.0)
