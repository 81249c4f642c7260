"""The life of a delivery as one pipe: count, wait, validate, work, verdict; held while PostgreSQL is away."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from typing import Any

import tenacity
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.alike import named_digest
from harness.core.classify import classify
from harness.core.errors import InvalidPayload, Unrecorded
from harness.core.failure import Failure, Kind
from harness.core.outcome import Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.reason import Reason
from harness.process.busy import is_lock_timeout, stand_aside
from harness.process.conflict import Conflicting, as_known, record_conflict
from harness.process.copy import Copy, Job
from harness.process.count import count
from harness.process.external import Outside
from harness.process.order import OutOfTurn, pass_on
from harness.process.order import stand_aside as stand_out_of_turn
from harness.process.rekey import rekey
from harness.process.settle import Abandoned, NotRelayed, settle_alone
from harness.process.spec import JobSpec, Limits
from harness.process.unknown import give_up
from harness.process.verdict import NotOurs, Own, own, put_off, verdict
from harness.process.work import Failed, Handler, Keep, LostAtWork, work
from harness.store.database import Database, DatabaseAway, seconds_until
from harness.store.store import Store

log = logging.getLogger("harness")

#: Calls the user's function with validated arguments: `(args, kwargs, session, job) -> result`.
Call = Callable[[tuple[Any, ...], dict[str, Any], Session, Job], Any]
#: Seconds to hold the message while PostgreSQL is away; asked when that is so.
Patience = Callable[[], float]
#: May this exception be swallowed? Not where the pool is ending this process: that is no failure of the job.
Interrupts = Callable[[BaseException], bool]


def deliver(
    database: Database,
    store: Store,
    copy: Copy,
    spec: JobSpec,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Call,
    limits: Limits,
    *,
    keep: Keep | None = None,
    interrupts: Interrupts = lambda error: False,
    patience: Patience | None = None,
) -> Outcome:
    """Bring one delivery to its one outcome, committed.

    Raises Unrecorded when PostgreSQL stayed away for `outage_hold` seconds, or for as long as `patience` says: nothing
    was decided and the message must not be acknowledged. Lets an exception for which `interrupts` is true pass.
    """
    delivery = _Delivery(database, store, copy, spec, args, kwargs, call, limits, keep, interrupts)
    outcome = _holding(limits, delivery.step, patience)
    if copy.leaves_room:
        pass_on(database, store, copy)
    return outcome


def record(
    database: Database,
    store: Store,
    copy: Copy,
    failure: Failure,
    policy: Policy,
    limits: Limits,
    payload: Any = None,
    *,
    blocks: bool = False,
) -> Outcome:
    """Give the verdict on a copy whose child died or that no handler can run. Raises Unrecorded as `deliver` does.

    `blocks`: where the job is dead, its ordering key waits for a person.
    """

    def step() -> Outcome:
        current = copy
        try:
            if current.suspicious:
                counted = count(database, store, current, limits)
                if isinstance(counted, (Duplicate, Stale)):
                    return counted
                current, _ = counted
            return verdict(database, store, current, failure, policy, limits, payload=payload, blocks=blocks)
        except NotRelayed:
            plain = current.plain(current.key.consumer)
            return verdict(database, store, plain, failure, policy, limits, payload=payload)
        except Abandoned as found:
            return give_up(database, store, current, found, limits, payload, failure, blocks)
        except Conflicting as found:
            return record_conflict(database, store, current, found, limits, payload)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            return stand_aside(database, store, current, limits)

    outcome = _holding(limits, step)
    if copy.leaves_room:
        pass_on(database, store, copy)
    return outcome


def _holding(limits: Limits, step: Callable[[], Outcome], patience: Patience | None = None) -> Outcome:
    """Repeat `step` while the database is away; no try of the job is spent by that."""
    try:
        return step()
    except DatabaseAway as error:
        away = error
    return _held(patience() if patience else limits.outage_hold, step, away)


def _held(seconds: float, step: Callable[[], Outcome], away: DatabaseAway) -> Outcome:
    tries = chain([_raising(away)], repeat(step))
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(DatabaseAway),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=3),
        stop=tenacity.stop_after_delay(seconds),
        before_sleep=_say_away,
    )
    try:
        return retrying(lambda: next(tries)())
    except tenacity.RetryError as error:
        cause = error.last_attempt.exception()
        raise Unrecorded(
            f"PostgreSQL has been away for {seconds:g} s ({cause}); the message is not acknowledged."
        ) from cause


def _raising(error: Exception) -> Callable[[], Outcome]:
    def step() -> Outcome:
        raise error

    return step


def _say_away(state: tenacity.RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        log.warning("database away, holding the message: %s", state.outcome.exception())


class _Delivery:
    """The state of a delivery between two steps: whether it still has to be counted, or has called its handler."""

    outside: Outside | None = None

    def __init__(
        self,
        database: Database,
        store: Store,
        copy: Copy,
        spec: JobSpec,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        call: Call,
        limits: Limits,
        keep: Keep | None,
        interrupts: Interrupts,
    ) -> None:
        self.database, self.store, self.copy, self.spec, self.limits = database, store, copy, spec, limits
        self.args, self.kwargs, self.call, self.keep, self.interrupts = args, kwargs, call, keep, interrupts
        self.policy = spec.policy_for(copy.arrival.message.queue)

    def step(self) -> Outcome:
        try:
            return self._step()
        except NotRelayed:
            self.copy = self.copy.plain(self.spec.consumer)
            return self.step()
        except OutOfTurn as error:
            return stand_out_of_turn(self.database, self.store, self.copy, self.limits, error.taken)
        except Abandoned as found:
            blocks = self.spec.on_dead == "block"
            return give_up(self.database, self.store, self.copy, found, self.limits, self._payload(), blocks=blocks)
        except Conflicting as found:
            return self._conflict(found)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            return stand_aside(self.database, self.store, self.copy, self.limits)

    def _step(self) -> Outcome:
        if self.copy.key.consumer != self.spec.consumer:
            return rekey(self.database, self.store, self.copy, self.spec.consumer, self.limits)
        if self.copy.suspicious:
            counted = count(self.database, self.store, self.copy, self.limits)
            if isinstance(counted, (Duplicate, Stale)):
                return counted
            self.copy, deliveries = counted
            if deliveries > self.limits.max_deliveries:
                return self._verdict(_killed_its_workers(deliveries), final=Reason.crashed)
        if self.copy.revoked is not None and not self._is_replay():
            return self._verdict(Failure(Kind.revoked, "Revoked", self.copy.revoked))
        if self.copy.eta is not None and (outcome := self._wait_for(self.copy.eta)):
            return outcome
        try:
            values = self.spec.signature.validate(self.args, self.kwargs)
        except InvalidPayload as error:
            return self._verdict(classify(error))
        return self._work(*values)

    def _conflict(self, found: Conflicting) -> Outcome:
        same = as_known(self.copy, found, self.spec.signature, self.args, self.kwargs)
        if same is None:
            payload = {"args": list(self.args), "kwargs": dict(self.kwargs)}
            found.named = named_digest(self.spec.signature.sent, self.args, self.kwargs)
            return record_conflict(self.database, self.store, self.copy, found, self.limits, payload)
        self.copy = same
        return self.step()

    def _is_replay(self) -> bool:
        """A replay is an operator's word and newer than a revoke, of which the workers keep the id for hours."""
        with self.database.begin() as session:
            row = self.store.inbox.find(session, self.copy.key)
        return self.copy.relayed and row is not None and row.letter_id is not None

    def _work(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        def handler(session: Session, job: Job) -> Any:
            return self.call(args, kwargs, session, job)

        if self.spec.external is not None:
            return self._work_outside(handler)
        try:
            return work(self.database, self.store, self.copy, handler, self.limits, self.keep)
        except LostAtWork as error:
            if error.__cause__ is not None and self.interrupts(error.__cause__):
                raise error.__cause__ from None
            self.copy = self.copy.to_be_counted()
            raise
        except Failed as failed:
            if isinstance(failed.error, Failure):
                return self._verdict(failed.error)
            if self.interrupts(failed.error):
                raise failed.error from None
            return self._verdict(classify(failed.error, self.spec.permanent))

    def _work_outside(self, handler: Handler) -> Outcome:
        external = self.spec.external
        assert external is not None
        if self.outside is None:
            self.outside = Outside(self.database, self.store, self.copy, external, self.limits, self.keep)
        outside = self.outside
        try:
            return outside.work(handler)
        except Failed as failed:
            if isinstance(failed.error, BaseException) and self.interrupts(failed.error):
                raise failed.error from None
            failure = outside.failure_of(failed.error, self.spec.permanent)
            if not outside.called:
                return self._verdict(failure)
            outcome = self._verdict(failure, take=outside.own)
            outside.tell_late(outcome, f"ended with {failure.error_type}")
            return outcome

    def _payload(self) -> dict[str, Any]:
        return {"args": list(self.args), "kwargs": dict(self.kwargs)}

    def _verdict(self, failure: Failure, final: Reason | None = None, take: Own | None = None) -> Outcome:
        return verdict(
            self.database,
            self.store,
            self.copy,
            failure,
            self.policy,
            self.limits,
            final=final,
            payload=self._payload(),
            blocks=self.spec.on_dead == "block",
            take=take,
        )

    def _wait_for(self, eta: datetime) -> Outcome | None:
        """Wait for a producer's eta in the inbox, where no time-out or restart touches it; None when it has come."""
        copy = self.copy
        try:
            with self.database.begin() as session:
                delay = seconds_until(session, eta)
                if delay <= 0:
                    return None
                row = own(session, self.store, copy, self.limits)
                put_off(session, self.store, copy, row, delay=delay, attempts=row.attempts if row else 0, failures=[])
        except NotOurs:
            return settle_alone(self.database, self.store, copy, self.limits)
        return Deferred(0, delay, Failure(Kind.retry_later, "Eta", f"waits until {eta.isoformat()}"), False)


def _killed_its_workers(deliveries: int) -> Failure:
    text = (
        f"delivered {deliveries - 1} times without an outcome: each time the worker died, or its connection broke, "
        "while the job ran"
    )
    return Failure(Kind.crashed, "WorkerLost", text)
