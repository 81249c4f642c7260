"""The life of a delivery as one pipe: move, count, wait, validate, work, verdict; held while PostgreSQL is away."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.alike import named_digest
from harness.core.classify import classify
from harness.core.errors import InvalidPayload
from harness.core.failure import Failure, Kind
from harness.core.outcome import Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.process.busy import is_lock_timeout, stand_aside
from harness.process.conflict import Conflicting, as_known, record_conflict
from harness.process.copy import Copy, Job
from harness.process.count import count, killed_its_workers
from harness.process.eta import wait_for
from harness.process.external import Outside
from harness.process.failed import Failed
from harness.process.holding import Patience, holding
from harness.process.order import OutOfTurn, pass_on
from harness.process.order import stand_aside as stand_out_of_turn
from harness.process.rekey import rekey
from harness.process.settle import Abandoned, NotRelayed
from harness.process.spec import JobSpec, Limits
from harness.process.unknown import give_up
from harness.process.verdict import Own, verdict
from harness.process.work import Handler, Keep, LostAtWork, work
from harness.store.database import Database
from harness.store.store import Store

#: Calls the user's function with validated arguments: `(args, kwargs, session, job) -> result`.
Call = Callable[[tuple[Any, ...], dict[str, Any], Session, Job], Any]
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
    outcome = holding(limits, delivery.step, patience)
    if copy.leaves_room:
        pass_on(database, store, copy)
    return outcome


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
        """From where the delivery stands to its outcome. Where another copy works for too long, the inbox has it."""
        try:
            return self._outcome()
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            return stand_aside(self.database, self.store, self.copy, self.limits)

    def _outcome(self) -> Outcome:
        """What the pipe ends with, or what it has found that the copy is not."""
        try:
            return self._pipe()
        except NotRelayed:
            self.copy = self.copy.plain(self.spec.consumer)
        except Conflicting as found:
            same = as_known(self.copy, found, self.spec.signature, self.args, self.kwargs)
            if same is None:
                return self._conflict(found)
            self.copy = same
        except OutOfTurn as error:
            return stand_out_of_turn(self.database, self.store, self.copy, self.limits, error.taken)
        except Abandoned as found:
            blocks = self.spec.on_dead == "block"
            return give_up(self.database, self.store, self.copy, found, self.limits, self._payload(), blocks=blocks)
        return self._outcome()

    def _pipe(self) -> Outcome:
        if self.copy.key.consumer != self.spec.consumer:
            return rekey(self.database, self.store, self.copy, self.spec.consumer, self.limits)
        if self.copy.suspicious and (outcome := self._count()):
            return outcome
        if self.copy.revoked is not None and not self._is_replay():
            return self._verdict(Failure(Kind.revoked, "Revoked", self.copy.revoked))
        if self.copy.eta is not None and (outcome := self._wait()):
            return outcome
        try:
            args, kwargs = self.spec.signature.validate(self.args, self.kwargs)
        except InvalidPayload as error:
            return self._verdict(classify(error))
        return self._work(args, kwargs)

    # -- the parts -------------------------------------------------------------------------------------------------

    def _count(self) -> Outcome | None:
        counted = count(self.database, self.store, self.copy, self.limits)
        if isinstance(counted, (Duplicate, Stale)):
            return counted
        self.copy, deliveries = counted
        if deliveries > self.limits.max_deliveries:
            return self._verdict(killed_its_workers(deliveries), final=Reason.crashed)
        return None

    def _is_replay(self) -> bool:
        """A replay is an operator's word and newer than a revoke, of which the workers keep the id for hours."""
        with self.database.begin() as session:
            row = self.store.inbox.find(session, self.copy.key)
        return self.copy.relayed and row is not None and row.letter_id is not None

    def _wait(self) -> Outcome | None:
        assert self.copy.eta is not None
        return wait_for(self.database, self.store, self.copy, self.copy.eta, self.limits)

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

    def _conflict(self, found: Conflicting) -> Outcome:
        found.named = named_digest(self.spec.signature.sent, self.args, self.kwargs)
        return record_conflict(self.database, self.store, self.copy, found, self.limits, self._payload())

    def _payload(self) -> dict[str, Any]:
        return {"args": list(self.args), "kwargs": dict(self.kwargs)}
