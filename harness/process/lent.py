"""The connection that a handler has worked on: what it says of the transaction, and of the database."""

from dataclasses import replace
from typing import Any

from psycopg2.extensions import (
    TRANSACTION_STATUS_IDLE,
    TRANSACTION_STATUS_INERROR,
    TRANSACTION_STATUS_INTRANS,
)
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.classify import classify
from harness.core.errors import TransactionRefused
from harness.core.failure import Failure, Kind
from harness.process.swallowed import refused
from harness.store.database import means_away, sqlstate
from harness.store.guard import WorkSession

#: disk_full, read_only_sql_transaction, and errors outside of PostgreSQL such as those of its disk.
CANNOT_WRITE = ("53100", "25006", "58")


def refusal_of(error: BaseException, raw: Any) -> Failure | BaseException | None:
    """PostgreSQL answers, but can't write, or has not enough of something: no crash. None where it is nothing like it.

    A disk that is full, or a server that became a standby, is no fault of the job, which waits without spending a try.
    What is out of memory, or beyond a configured limit, may well be its own: a failed try.
    """
    if not is_away(error, raw):
        return None
    code = sqlstate(root_of(error))
    if code.startswith(CANNOT_WRITE):
        return replace(classify(error), kind=Kind.not_ready, delay=None)
    return error if code.startswith("53") else None


def is_away(error: BaseException, raw: Any) -> bool:
    """Does the error say that *this* database is away? Handlers talk to others, too: that is a failed try."""
    root = root_of(error)
    cursor = getattr(getattr(root, "orig", None), "cursor", None)
    return means_away(root) and cursor is not None and cursor.connection is raw


def still_open(raw: Any) -> None:
    """COMMIT on a transaction that failed, or has ended already, would say yes and keep nothing."""
    status = raw.info.transaction_status
    if status == TRANSACTION_STATUS_INERROR:
        raise refused(raw)
    if status != TRANSACTION_STATUS_INTRANS or raw.ended:
        raise TransactionRefused(
            "The transaction that belongs to the harness has ended while the handler ran: it was rolled back, by the "
            "handler or after a flush that failed, and the handler went on. Nothing is committed. Let the exception "
            "through, or use `with session.begin_nested():` for what may fail."
        )


def root_of(error: BaseException | Failure) -> BaseException:
    """The database's error behind what the handler raised."""
    seen: BaseException | None = error if isinstance(error, BaseException) else None
    for _ in range(10):
        if seen is None or isinstance(seen, DBAPIError):
            break
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return error if isinstance(error, BaseException) else RuntimeError(error.message)
    return seen


def closed(connection: Connection) -> bool:
    """Has the connection broken?"""
    if connection.invalidated or connection.closed:
        return True
    raw = connection.connection.dbapi_connection
    return raw is None or bool(raw.closed)


def close(session: WorkSession, connection: Connection) -> None:
    """End what the handler has left open; a connection that is not as it was is not used again."""
    try:
        Session.close(session)
        raw: Any = None if connection.invalidated else connection.connection.dbapi_connection
        if raw is None or raw.info.transaction_status != TRANSACTION_STATUS_IDLE:
            # SQLAlchemy believes that the transaction is over: the next one to use the connection would go on in it.
            connection.invalidate()
    except DBAPIError:
        connection.invalidate()
