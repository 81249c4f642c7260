"""The work transaction: fence, handler, commit. Whatever goes wrong, nothing of it stays."""

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, literal, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.errors import HarnessError, TransactionRefused
from harness.core.failure import Failure, Kind
from harness.core.outcome import Completed, Duplicate, Stale
from harness.process.busy import is_lock_timeout
from harness.process.copy import Copy, Job
from harness.process.settle import settle
from harness.process.spec import Limits
from harness.store.database import Database, DatabaseAway, WorkSession, means_away, sqlstate
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

#: serialization_failure and deadlock_detected: PostgreSQL asks for nothing but another try.
AT_ONCE = ("40001", "40P01")

Handler = Callable[[Session, Job], Any]
#: Turns a handler's result into bytes, where someone may still ask for it.
Keep = Callable[[Any], bytes]


class LostAtWork(DatabaseAway):
    """The connection broke while the handler ran: the job itself may be the cause."""


class Failed(HarnessError):
    """The handler raised, or the job may not run: `error` is what a verdict is made from."""

    def __init__(self, error: BaseException | Failure) -> None:
        super().__init__(repr(error))
        self.error = error


def work(
    database: Database, store: Store, copy: Copy, handler: Handler, limits: Limits, keep: Keep | None = None
) -> Completed | Duplicate | Stale:
    """Run the handler behind the fence and commit.

    Raises DatabaseAway (LostAtWork inside the handler), Failed, or DBAPIError where the fence is held too long. Then
    the transaction is rolled back; or, where the answer to COMMIT was lost, the fence of the next try shows whether.
    """
    for again in range(limits.immediate_tries):
        try:
            return _once(database, store, copy, handler, limits, keep)
        except Failed as failed:
            if again + 1 == limits.immediate_tries or sqlstate(_root(failed.error)) not in AT_ONCE:
                raise
            time.sleep(random.uniform(0, 0.02 * 2**again))
    raise AssertionError("unreachable: the last try returns or raises")


def _once(
    database: Database, store: Store, copy: Copy, handler: Handler, limits: Limits, keep: Keep | None
) -> Completed | Duplicate | Stale:
    try:
        connection = database.engine.connect()
    except DBAPIError as error:
        raise DatabaseAway(f"cannot connect: {error.orig}") from error
    with connection:
        session = WorkSession(bind=connection, expire_on_commit=False)
        try:
            return _transaction(session, connection, store, copy, handler, limits, keep)
        finally:
            _close(session, connection)


def _transaction(
    session: WorkSession,
    connection: Connection,
    store: Store,
    copy: Copy,
    handler: Handler,
    limits: Limits,
    keep: Keep | None,
) -> Completed | Duplicate | Stale:
    try:
        taken, row = _take(session, store, copy, limits)
        if not taken:
            outcome = settle(session, store, copy)
            Session.commit(session)
            return outcome
        _refuse_late(session, copy, row, limits)
    except DBAPIError as error:
        if is_lock_timeout(error):
            raise
        if means_away(error):
            raise DatabaseAway(str(error.orig)) from error
        raise Failed(error) from error

    result = _call(session, connection, handler, _job(copy, row))
    try:
        if keep is not None:
            store.fence.keep_result(session, copy.key, keep(result))
        if row is not None and row.letter_id is not None:
            store.letters.resolve(session, copy.key)
        Session.commit(session)
    except Exception as error:
        if means_away(error) or _closed(connection):
            raise DatabaseAway(f"the answer to COMMIT was lost: {error}") from error
        raise Failed(error) from error
    return Completed(result)


def _take(session: Session, store: Store, copy: Copy, limits: Limits) -> tuple[bool, InboxRow | None]:
    taken = store.fence.take(
        session,
        copy.key,
        FenceState.DONE,
        relayed=copy.relayed,
        digest=copy.arrival.digest,
        wait_ms=limits.fence_wait_ms,
    )
    if not taken or copy.generation is None:
        return taken, None
    row = store.inbox.claim(session, copy.key, copy.generation)
    if row is None:
        # The fence was free, but the row has gone on without this copy: undo the claim.
        Session.rollback(session)
        return False, None
    return True, row


def _refuse_late(session: Session, copy: Copy, row: InboxRow | None, limits: Limits) -> None:
    """Expired and too old, by the database's clock; asked only where the message gives cause to."""
    if copy.expires is not None and session.scalar(select(func.now() >= literal(copy.expires))):
        raise Failed(Failure(Kind.expired, "Expired", f"expired at {copy.expires.isoformat()} before it could run"))
    if copy.sent_at is None or row is not None:
        return
    age = timedelta(seconds=limits.too_old)
    if datetime.now(UTC) - copy.sent_at > age / 2 and session.scalar(select(func.now() - literal(copy.sent_at) > age)):
        text = f"sent at {copy.sent_at.isoformat()}: its fence may have been pruned since, so it cannot be told new"
        raise Failed(Failure(Kind.too_old, "TooOld", text))


def _job(copy: Copy, row: InboxRow | None) -> Job:
    arrival = copy.arrival
    return Job(
        id=arrival.job_id,
        task=arrival.task,
        consumer=arrival.consumer,
        attempt=row.attempts + 1 if row else 1,
        deliveries=row.deliveries if row else 1,
        correlation_id=arrival.correlation_id or arrival.job_id,
        queue=arrival.message.queue,
        tenant=arrival.tenant,
        ordering_key=arrival.ordering_key,
        replay_of=row.letter_id if row else None,
    )


def _call(session: WorkSession, connection: Connection, handler: Handler, job: Job) -> Any:
    # Kept by reference: a connection that has broken meanwhile refuses to be asked for it.
    marks = connection.info
    marks["at_work"] = True
    try:
        result = handler(session, job)
        session.flush()
        _still_open(connection)
        return result
    except BaseException as error:
        if _closed(connection):
            raise LostAtWork(f"the connection was lost in the handler: {error!r}") from error
        if means_away(_root(error)):
            raise LostAtWork(f"the database went away in the handler: {error!r}") from error
        raise Failed(error) from error
    finally:
        marks.pop("at_work", None)


def _still_open(connection: Connection) -> None:
    """COMMIT on a transaction that failed, or has ended already, would say yes and keep nothing."""
    from psycopg2.extensions import TRANSACTION_STATUS_INERROR, TRANSACTION_STATUS_INTRANS

    status = connection.connection.dbapi_connection.info.transaction_status  # type: ignore[union-attr]
    if status == TRANSACTION_STATUS_INTRANS:
        return
    if status == TRANSACTION_STATUS_INERROR:
        raise TransactionRefused(
            "A statement of the handler failed and the handler went on: PostgreSQL has given up the whole transaction, "
            "so nothing of it can be committed. Let the exception through, or run the statement that may fail inside "
            "`with session.begin_nested():`."
        )
    raise TransactionRefused(
        "The handler ended the transaction that belongs to the harness (on the raw connection?). What it did before "
        "is committed, the rest is not. Use the session as it is given, without commit or rollback."
    )


def _root(error: BaseException | Failure) -> BaseException:
    """The database's error behind what the handler raised."""
    seen: BaseException | None = error if isinstance(error, BaseException) else None
    for _ in range(10):
        if seen is None or isinstance(seen, DBAPIError):
            break
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return error if isinstance(error, BaseException) else RuntimeError(error.message)
    return seen


def _closed(connection: Connection) -> bool:
    if connection.invalidated or connection.closed:
        return True
    raw = connection.connection.dbapi_connection
    return raw is None or bool(raw.closed)


def _close(session: WorkSession, connection: Connection) -> None:
    try:
        Session.close(session)
    except DBAPIError:
        connection.invalidate()
