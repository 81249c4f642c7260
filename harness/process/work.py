"""The work transaction: fence, handler, commit. Whatever goes wrong, nothing of it stays."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg2.extensions import (
    TRANSACTION_STATUS_IDLE,
    TRANSACTION_STATUS_INERROR,
    TRANSACTION_STATUS_INTRANS,
)
from sqlalchemy import func, literal, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.classify import classify
from harness.core.errors import HarnessError, TransactionRefused
from harness.core.failure import Failure, Kind
from harness.core.outcome import Completed, Duplicate, Stale
from harness.process.busy import is_lock_timeout
from harness.process.copy import Copy, Job
from harness.process.order import take_turn
from harness.process.settle import settle
from harness.process.spec import Limits
from harness.process.swallowed import refused, swallowed
from harness.store.database import AT_ONCE, Database, DatabaseAway, means_away, sqlstate
from harness.store.guard import WorkSession
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

#: disk_full, read_only_sql_transaction, and errors outside of PostgreSQL such as those of its disk.
CANNOT_WRITE = ("53100", "25006", "58")

Handler = Callable[[Session, Job], Any]
#: Turns a handler's result into bytes, where someone may still ask for it; None for one that can't be kept.
Keep = Callable[[Any], bytes | None]


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
        if keep is not None and (kept := keep(result)) is not None:
            store.fence.keep_result(session, copy.key, kept)
        if row is not None and row.letter_id is not None:
            store.letters.resolve(session, copy.key)
        Session.commit(session)
    except Exception as error:
        if means_away(error) or _closed(connection):
            raise DatabaseAway(f"the answer to COMMIT was lost: {error}") from error
        raise Failed(error) from error
    return Completed(result, row.attempts + 1 if row else 1)


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
    # The broker may have given the message to somebody who has let it go, for this transaction was open. Then the row
    # is what remembers that something comes after the job.
    if copy.ordered is not None:
        take_turn(session, store, copy)
    have = store.inbox.lock if copy.goes_on else store.inbox.claim
    row = have(session, copy.key, copy.generation)
    if row is None:
        # The fence was free, but the row has gone on without this copy: undo the claim.
        Session.rollback(session)
        return False, None
    return True, row


def _refuse_late(session: Session, copy: Copy, row: InboxRow | None, limits: Limits) -> None:
    """Expired and too old, by the database's clock; asked only where the message gives cause to."""
    if copy.expires is not None and session.scalar(select(func.now() >= literal(copy.expires))):
        raise Failed(Failure(Kind.expired, "Expired", f"expired at {copy.expires.isoformat()} before it could run"))
    if copy.sent_at is None or (row is not None and row.letter_id is not None):
        return  # a replay is a person's word
    age = timedelta(seconds=limits.too_old)
    if row is not None:
        # Put in from a late copy, whatever came of that one: its fence may have been pruned before that.
        late = row.created_at - copy.sent_at > age
    else:
        late = datetime.now(UTC) - copy.sent_at > age / 2 and bool(session.scalar(_older(copy.sent_at, age)))
    if late:
        text = f"sent at {copy.sent_at.isoformat()}: its fence may have been pruned since, so it cannot be told new"
        raise Failed(Failure(Kind.too_old, "TooOld", text))


def _older(moment: datetime, age: timedelta) -> Any:
    return select(func.now() - literal(moment) > age)


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
    raw: Any = connection.connection.dbapi_connection
    raw.at_work, raw.ended = True, False
    try:
        result = handler(session, job)
        session.flush()
        _still_open(raw)
        return result
    except BaseException as error:
        if not raw.closed and (refusal := _refusal(error, raw)) is not None:
            raise Failed(refusal) from error
        if raw.closed or _is_away(error, raw):
            raise LostAtWork(f"the database went away in the handler ({type(error).__name__})") from error
        raise Failed(swallowed(error, raw) or error) from error
    finally:
        raw.at_work = False


def _refusal(error: BaseException, raw: Any) -> Failure | BaseException | None:
    """PostgreSQL answers, but can't write, or has not enough of something: no crash. None where it is nothing like it.

    A disk that is full, or a server that became a standby, is no fault of the job, which waits without spending a try.
    What is out of memory, or beyond a configured limit, may well be its own: a failed try.
    """
    if not _is_away(error, raw):
        return None
    code = sqlstate(_root(error))
    if code.startswith(CANNOT_WRITE):
        return replace(classify(error), kind=Kind.not_ready, delay=None)
    return error if code.startswith("53") else None


def _is_away(error: BaseException, raw: Any) -> bool:
    """Does the error say that *this* database is away? Handlers talk to others, too: that is a failed try."""
    root = _root(error)
    cursor = getattr(getattr(root, "orig", None), "cursor", None)
    return means_away(root) and cursor is not None and cursor.connection is raw


def _still_open(raw: Any) -> None:
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
        raw: Any = None if connection.invalidated else connection.connection.dbapi_connection
        if raw is None or raw.info.transaction_status != TRANSACTION_STATUS_IDLE:
            # SQLAlchemy believes that the transaction is over: the next one to use the connection would go on in it.
            connection.invalidate()
    except DBAPIError:
        connection.invalidate()
