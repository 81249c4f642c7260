"""A job whose effects are outside of the database: claimed before its handler is called, done when that has returned.

Two transactions instead of one. The first claims the fence and has the inbox keep the message; what dies from there on
leaves both, and the relay finds the claim when its time is over. The second commits what the handler wrote through its
session together with `done`. Nobody calls the handler again in doubt: the job becomes a letter, `outcome_unknown`.
"""

import logging
import threading
from typing import Any

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.classify import Permanents, classify
from harness.core.failure import Failure, Kind
from harness.core.outcome import Completed, Duplicate, Stale
from harness.process.busy import is_lock_timeout
from harness.process.claim import Claim, ending_itself
from harness.process.copy import Copy, job_of
from harness.process.failed import Failed
from harness.process.late import refuse_late
from harness.process.lent import close, closed, is_away, still_open
from harness.process.order import take_turn
from harness.process.settle import settle, settle_alone
from harness.process.spec import External, Limits
from harness.process.swallowed import swallowed
from harness.process.unknown import Owner, error_of, lost, refused, tell_late
from harness.process.verdict import NotOurs
from harness.process.work import Handler, Keep
from harness.store.contents import evict
from harness.store.database import Database, DatabaseAway, means_away
from harness.store.guard import WorkSession
from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

log = logging.getLogger("harness")
#: The claim whose handler this thread has called last: a delivery that is begun again must not call it again.
_called = threading.local()


class Outside:
    """One delivery of such a job. `work` may be repeated while the database is away; the handler is called once."""

    def __init__(
        self, database: Database, store: Store, copy: Copy, external: External, limits: Limits, keep: Keep | None
    ) -> None:
        self.database, self.store, self.copy, self.limits, self.keep = database, store, copy, limits, keep
        self.external, self.claim = external, Claim.of(copy.claim, external)
        self.own = Owner(self.claim.number)
        self.called = getattr(_called, "number", None) == self.claim.number
        self._row: InboxRow | None = None
        self._result: Any = None
        # What the handler, or the commit after it, has ended with; None where it has returned and all can be committed.
        self._ended: BaseException | Failure | None = lost("the run was cut off") if self.called else None

    def work(self, handler: Handler) -> Completed | Duplicate | Stale:
        """Claim, call the handler, commit `done`.

        Raises DatabaseAway (to be repeated), Failed (a verdict follows: by `own` once the handler was called), or
        DBAPIError where the fence is held too long.
        """
        if not self.called:
            if (settled := self._claim()) is not None:
                return settled
            return self._call(handler)
        if self._ended is not None:
            raise Failed(self._ended)
        return self._complete_alone()

    def failure_of(self, error: BaseException | Failure, permanent: Permanents) -> Failure:
        """What `Failed` has brought, as a failure. A soft time limit that the handler did not expect leaves it open."""
        if isinstance(error, Failure):
            return error
        failure = classify(error, permanent, self.external.unknown)
        return error_of(failure) if failure.kind is Kind.timed_out else failure

    # -- the first transaction -------------------------------------------------------------------------------------

    def _claim(self) -> Duplicate | Stale | None:
        """Claim the job, committed; what the copy is, where it can't have it."""
        try:
            with self.database.begin() as session:
                if not self._take(session):
                    return None if self._is_mine(session) else settle(session, self.store, self.copy)
                self._keep_message(session)
        except NotOurs:
            return settle_alone(self.database, self.store, self.copy, self.limits)
        except DBAPIError as error:
            if is_lock_timeout(error):
                raise
            raise Failed(error) from error
        return None

    def _take(self, session: Session) -> bool:
        copy = self.copy
        return self.store.fence.take(
            session,
            copy.key,
            FenceState.CLAIMED,
            relayed=copy.relayed,
            digest=copy.arrival.digest,
            wait_ms=self.limits.fence_wait_ms,
        )

    def _keep_message(self, session: Session) -> None:
        """Have the inbox keep it until the claim's time is over."""
        copy, inbox = self.copy, self.store.inbox
        if copy.ordered is not None:
            take_turn(session, self.store, copy)
        row = None if copy.generation is None else inbox.lock(session, copy.key, copy.generation)
        if row is None and copy.generation is not None:
            raise NotOurs
        refuse_late(session, copy, row, self.limits)
        # Without a say, for the fence is ours, a row may be there all the same: of a producer or of a copy that waited.
        if row is None and not inbox.add(session, copy.arrival, deliveries=1):
            if evict(session, self.store, copy.arrival):
                inbox.add(session, copy.arrival, deliveries=1)
            else:
                row = inbox.find(session, copy.key)
        left = self.claim.limit + self.external.margin
        inbox.mark_claimed(session, copy.key, self.claim.number, seconds_left=left)
        self._row = row

    def _is_mine(self, session: Session) -> bool:
        """Has this delivery claimed the job before, and the answer to its COMMIT was lost?"""
        fence = self.store.fence.look(session, self.copy.key)
        if fence is None or fence.state is not FenceState.CLAIMED:
            return False
        self._row = self.store.inbox.lock(session, self.copy.key, self.claim.number)
        return self._row is not None

    # -- the handler -----------------------------------------------------------------------------------------------

    def _call(self, handler: Handler) -> Completed | Duplicate | Stale:
        try:
            connection = self.database.engine.connect()
        except DBAPIError as error:
            raise DatabaseAway(f"cannot connect: {error.orig}") from error
        with connection:
            session = WorkSession(bind=connection, expire_on_commit=False)
            try:
                # Later than the parent's kill, and sooner than anybody may take the claim for abandoned.
                if self.claim.sent:
                    with ending_itself(self.claim.limit + self.external.margin / 2):
                        return self._run(session, connection, handler)
                return self._run(session, connection, handler)
            finally:
                close(session, connection)

    def _run(self, session: WorkSession, connection: Connection, handler: Handler) -> Completed | Duplicate | Stale:
        raw: Any = connection.connection.dbapi_connection
        raw.at_work, raw.ended = True, False
        self.called, _called.number = True, self.claim.number
        self._ended = lost("the run was cut off")  # until it is known better
        returned = False
        try:
            self._result = handler(session, job_of(self.copy, self._row))
            returned = True
            session.flush()
            if raw.ended or session.in_transaction():
                still_open(raw)
        except BaseException as error:
            self._ended = refused(error) if returned else self._raised(error, raw)
            raise Failed(self._ended) from error
        finally:
            raw.at_work = False
        return self._commit(session, connection)

    def _raised(self, error: BaseException, raw: Any) -> BaseException | Failure:
        """The handler's word counts, but the loss of its connection is none: it may have made its call before."""
        if (raw.closed or is_away(error, raw)) and classify(error).kind is Kind.transient:
            return lost("its connection to PostgreSQL broke in the handler", error)
        return swallowed(error, raw) or error

    # -- the second transaction ------------------------------------------------------------------------------------

    def _commit(self, session: WorkSession, connection: Connection) -> Completed | Duplicate | Stale:
        wrote = session.in_transaction()
        try:
            self._complete(session)
            Session.commit(session)
        except NotOurs:
            Session.rollback(session)
            return self._too_late()
        except SystemExit:
            raise
        except BaseException as error:
            if wrote and isinstance(error, DBAPIError) and not means_away(error) and not closed(connection):
                self._ended = refused(error)
                raise Failed(self._ended) from error
            self._ended = lost("what the handler wrote was lost with its connection", error) if wrote else None
            raise DatabaseAway(f"the answer to COMMIT was lost: {error}") from error
        return self._completed()

    def _complete_alone(self) -> Completed | Duplicate | Stale:
        """The handler wrote nothing, so that any connection can commit `done`."""
        try:
            with self.database.begin() as session:
                self._complete(session)
        except NotOurs:
            return self._too_late()
        return self._completed()

    def _complete(self, session: Session) -> None:
        """Write `done`. Raises NotOurs where somebody else has taken the claim for abandoned, or it is done."""
        key, store = self.copy.key, self.store
        if not store.fence.leave_claim(session, key, FenceState.DONE, self.limits.fence_wait_ms):
            raise NotOurs
        # As in `work`: the row remembers that something comes after the job.
        have = store.inbox.lock if self.copy.goes_on else store.inbox.claim
        row = have(session, key, self.claim.number)
        if row is None:
            raise NotOurs
        if self.keep is not None:
            store.fence.keep_result(session, key, self.keep(self._result))
        if row.letter_id is not None:
            store.letters.resolve(session, key)

    def _completed(self) -> Completed:
        return Completed(self._result, self._row.attempts + 1 if self._row else 1)

    def _too_late(self) -> Duplicate | Stale:
        outcome = settle_alone(self.database, self.store, self.copy, self.limits)
        self.tell_late(outcome, "returned")
        return outcome

    def tell_late(self, outcome: object, how: str) -> None:
        """Say it loudly, and in the letter, where the handler has come to its end after its claim was given up."""
        if isinstance(outcome, Stale):
            tell_late(self.database, self.store, self.copy, how)
