"""The work transaction: fence, handler, commit. Whatever goes wrong, nothing of it stays."""

import random
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.outcome import Completed, Duplicate, Stale
from harness.process.busy import is_lock_timeout
from harness.process.copy import Copy, Job, job_of
from harness.process.failed import Failed
from harness.process.late import refuse_late
from harness.process.lent import close, closed, is_away, refusal_of, root_of, still_open
from harness.process.order import take_turn
from harness.process.settle import settle
from harness.process.spec import Limits
from harness.process.swallowed import swallowed
from harness.store.database import AT_ONCE, Database, DatabaseAway, means_away, sqlstate
from harness.store.guard import WorkSession
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

Handler = Callable[[Session, Job], Any]
#: Turns a handler's result into bytes, where someone may still ask for it; none at all for one that can't be kept.
Keep = Callable[[Any], bytes]


class LostAtWork(DatabaseAway):
    """The connection broke while the handler ran: the job itself may be the cause."""


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
            if again + 1 == limits.immediate_tries or sqlstate(root_of(failed.error)) not in AT_ONCE:
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
            close(session, connection)


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
        refuse_late(session, copy, row, limits)
    except DBAPIError as error:
        if is_lock_timeout(error):
            raise
        if means_away(error):
            raise DatabaseAway(str(error.orig)) from error
        raise Failed(error) from error

    result = _call(session, connection, handler, job_of(copy, row))
    try:
        if keep is not None:
            store.fence.keep_result(session, copy.key, keep(result))
        if row is not None and row.letter_id is not None:
            store.letters.resolve(session, copy.key)
        Session.commit(session)
    except Exception as error:
        if means_away(error) or closed(connection):
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


def _call(session: WorkSession, connection: Connection, handler: Handler, job: Job) -> Any:
    raw: Any = connection.connection.dbapi_connection
    raw.at_work, raw.ended = True, False
    try:
        result = handler(session, job)
        session.flush()
        still_open(raw)
        return result
    except BaseException as error:
        if not raw.closed and (refusal := refusal_of(error, raw)) is not None:
            raise Failed(refusal) from error
        if raw.closed or is_away(error, raw):
            raise LostAtWork(f"the database went away in the handler ({type(error).__name__})") from error
        raise Failed(swallowed(error, raw) or error) from error
    finally:
        raw.at_work = False
