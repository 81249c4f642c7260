"""What becomes of the messages of a source: a row of the inbox, or a letter; committed before anybody acknowledges.

Where the database is away, nothing becomes of them: `Away` is raised, and they are kept in hand.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError

from harness.core import events
from harness.core.errors import HarnessError, Unrecorded
from harness.core.failure import Failure, Kind
from harness.core.incoming import Delivered, Incoming, Unfit, Unreadable
from harness.core.message import job_key
from harness.core.outcome import Completed, Outcome
from harness.core.reason import Reason
from harness.process import deliver, record
from harness.process.busy import is_lock_timeout
from harness.process.conflict import conflict_failure
from harness.process.copy import Copy
from harness.receive import Received, ReceiveState
from harness.store.database import DatabaseAway, sqlstate
from harness.store.enqueueing import Entry
from harness.store.inbox import Arrival
from harness.worker import announce
from harness.worker.enqueue import run_steps
from harness.worker.receive import entry_of, steps_of
from harness.worker.source import Source
from harness.worker.unpack import unpack
from harness.worker.wire import CONSUMER, GENERATION, Wire, copy_of, id_of, wire_of

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")

#: Errors that are a message's own: data that PostgreSQL refuses, or has no room for in one value; a broken rule.
OWN_FAULT = ("22", "54", "23")
#: A message that PostgreSQL fails over so often, while it serves others, is given up as well.
MOST_FAILURES = 5
#: Bytes of a body that are kept where the whole can't be.
KEPT_OF_ALL = 1_000_000


class Away(HarnessError):
    """The database can't take anything now; the messages stay in hand."""


@dataclass(eq=False)
class Taken:
    """A message in hand. `read` is the row that it becomes, or what is wrong with it."""

    source: Source
    message: Any
    wire: Wire
    read: Entry | Failure
    failures: int = 0
    not_before: float = 0.0
    tell: list[Callable[[], None]] = field(default_factory=list)
    decided: bool = False

    @property
    def replayed(self) -> bool:
        """Is it the relay's copy of a message that became a letter of this source before?"""
        marks = self.wire.marks
        return GENERATION in marks and marks.get(CONSUMER) == self.source.spec.consumer


class Intake:
    """Takes messages in for one harness. `name` is how its process is called in letters."""

    def __init__(self, harness: "Harness", name: str) -> None:
        self.harness, self.name = harness, name
        # A message is held by its process, which goes on serving its connection to the broker meanwhile.
        self.limits = replace(harness.settings.limits, outage_hold=0.0)

    def look(self, source: Source, message: Any) -> Taken:
        """Read a message; never raises for what is in it."""
        wire = wire_of(message, source.queue.name, self.name)
        read: Entry | Failure
        try:
            read = self._read(source, message, wire)
        except Unfit as error:
            read = Failure(Kind.invalid, "Unfit", str(error), fingerprint=f"{source.name}:unfit")
        except Unreadable as error:
            read = Failure(Kind.undecodable, "Unreadable", str(error), fingerprint=f"{source.name}:unreadable")
        except Exception as error:
            kind = type(error).__name__
            text = f"{kind} while it was read or written as a job: {error}"
            read = Failure(Kind.undecodable, kind, text, fingerprint=f"{source.name}:{kind}")
        return Taken(source, message, wire, read)

    def _read(self, source: Source, message: Any, wire: Wire) -> Entry:
        if message.errors:
            raise Unreadable(f"its body can't be unpacked: {message.errors[0][1]!r}")
        exact = wire.message
        body = exact.body
        if compression := exact.headers.get("compression"):
            body = unpack(body, compression)
        info = message.delivery_info if isinstance(message.delivery_info, dict) else {}
        made = source.read(
            Delivered(
                body=body,
                headers=exact.headers,
                properties=exact.properties,
                content_type=exact.content_type,
                content_encoding=exact.content_encoding,
                routing_key=str(info.get("routing_key") or ""),
                queue=source.queue.name,
            )
        )
        if not isinstance(made, Incoming) or not isinstance(made.id, str) or not made.id:
            raise Unfit(f"the read= of source {source.name!r} returned no Incoming with an id")
        return entry_of(source.job, made, source.name)

    def settle(self, batch: Sequence[Taken]) -> None:
        """Decide what can be decided now, and commit; `decided` says which. Raises Away.

        What is told of it is told by the caller, after the acknowledgement or before it.
        """
        plain = [one for one in batch if isinstance(one.read, Entry) and not one.replayed]
        rest = [one for one in batch if one not in plain]
        if len(plain) > 1:
            # One by one where they do not go together: each is then judged by itself.
            with contextlib.suppress(DatabaseAway, DBAPIError, ValueError, MemoryError, OverflowError):
                self._store(plain)
        away: Away | None = None
        for one in (*plain, *rest):
            if one.decided or one.not_before > time.monotonic():
                continue
            try:
                self._settle_one(one)
            except Away as error:
                if away is not None:
                    raise  # the second one: it is not the message
                away = error
        if away is not None:
            raise away

    def _settle_one(self, one: Taken) -> None:
        try:
            if one.replayed:
                self._deliver(one)
            elif isinstance(one.read, Entry):
                self._store([one])
            else:
                self._bury(one, one.read)
        except (DatabaseAway, Unrecorded) as error:
            self._away(one, error)
        except (DBAPIError, ValueError, MemoryError, OverflowError) as error:
            if isinstance(error, DBAPIError) and is_lock_timeout(error):
                # Somebody's transaction has put the same job in and is still open: the others go on.
                one.not_before = time.monotonic() + self.limits.busy_delay
                return
            if isinstance(error, DBAPIError) and not sqlstate(error).startswith(OWN_FAULT):
                # A missing table or right, an older schema: no fault of the message.
                why = str(error.orig).strip().splitlines()[0][:300]
                raise Away(f"it answers, but takes nothing in: {why}") from error
            self._bury(one, _own(error))

    def _away(self, one: Taken, error: Exception) -> None:
        one.failures += 1
        if one.failures < MOST_FAILURES or not self.serves():
            raise Away(str(error)) from error
        text = f"PostgreSQL failed over it {one.failures} times, and serves others: {error}"
        self._bury(one, Failure(Kind.undecodable, "Unstorable", text, fingerprint=f"{one.source.name}:unstorable"))

    def serves(self) -> bool:
        """Does the database answer now?"""
        try:
            with self.harness.database.begin() as session:
                self.harness.store.inbox.seconds_until_due(session, self.harness.settings.service)
            return True
        except (DatabaseAway, DBAPIError):
            return False

    # -- the three ends ----------------------------------------------------------------------------------------------

    def _store(self, batch: Sequence[Taken]) -> None:
        entries = [one.read for one in batch if isinstance(one.read, Entry)]
        with self.harness.database.begin() as session:
            self.harness.store.fence.bound_waits(session, self.limits.fence_wait_ms)
            answers = run_steps(self.harness, session, steps_of(self.harness, entries))
        for one, entry, answer in zip(batch, entries, answers, strict=True):
            one.decided = True
            one.tell.append(self._news(one, entry.arrival, answer))

    def _deliver(self, one: Taken) -> None:
        """A message that was a letter before and is tried again: behind the fence of its source, as any such job."""
        copy = copy_of(one.wire, self.harness.settings.service, one.source.spec.consumer)
        copy = replace(copy, arrival=self._arrival(one), eta=None, expires=None, sent_at=None)
        if isinstance(one.read, Failure):
            self._bury(one, one.read, copy)
            return
        entry = one.read
        answers: list[Received] = []

        def call(args: Any, kwargs: Any, session: Any, job: Any) -> None:
            answers[:] = run_steps(self.harness, session, steps_of(self.harness, [entry]))

        database, store = self.harness.database, self.harness.store
        outcome = deliver(database, store, copy, one.source.spec, (), {}, call, self.limits)
        self._decide(one, copy, outcome)
        if isinstance(outcome, Completed) and answers:
            one.tell = [self._news(one, entry.arrival, answers[0])]

    def _bury(self, one: Taken, failure: Failure, copy: Copy | None = None) -> None:
        """Write the letter: with the exact message or, where that can't be written, with what can."""
        copy = copy or Copy(self._arrival(one), worker=self.name)
        for shorten in (_as_it_is, Wire.with_plain_headers, _cut):
            try:
                kept = replace(copy, arrival=replace(copy.arrival, message=shorten(one.wire).message))
                self._record(one, kept, failure)
                return
            except (DBAPIError, ValueError, MemoryError, OverflowError) as error:
                if isinstance(error, DBAPIError) and not sqlstate(error).startswith(OWN_FAULT):
                    raise Away(type(error).__name__) from error
                log.warning("receive: the letter of a message can't be written so (%s)", type(error).__name__)
            except Unrecorded as error:
                one.failures += 1
                if one.failures < MOST_FAILURES or not self.serves():
                    raise Away(str(error)) from error
        raise Away("not even the beginning of a message can be written")

    def _record(self, one: Taken, copy: Copy, failure: Failure) -> None:
        database, store = self.harness.database, self.harness.store
        policy = one.source.spec.policy
        payload = {"body": copy.arrival.message.body[:KEPT_OF_ALL]}
        self._decide(one, copy, record(database, store, copy, failure, policy, self.limits, payload))

    def _decide(self, one: Taken, copy: Copy, outcome: Outcome) -> None:
        one.decided = True
        one.tell.append(lambda: announce.outcome(self.harness, copy, outcome, 0.0))

    # -- what is said of it ------------------------------------------------------------------------------------------

    def _arrival(self, one: Taken) -> Arrival:
        """The message as its source's own: what is left of it when it can't be read."""
        spec, message = one.source.spec, one.wire.message
        own = id_of(one.wire) if one.replayed else job_key(message.properties.get("message_id"), message.body)
        correlation = message.properties.get("correlation_id")
        return Arrival(
            service=spec.service,
            consumer=spec.consumer,
            task=spec.task,
            job_id=own,
            message=message,
            digest=hashlib.sha256(message.body).digest(),
            correlation_id=job_key(correlation, b"") if isinstance(correlation, str) and correlation else own,
        )

    def _news(self, one: Taken, arrival: Arrival, answer: Received) -> Callable[[], None]:
        who: dict[str, Any] = {
            "service": arrival.service,
            "consumer": arrival.consumer,
            "job_id": answer.job_id,
            "task": arrival.task,
            "correlation_id": arrival.correlation_id,
        }
        emit = self.harness.events.emit
        if answer.letter_id is not None:
            failure = conflict_failure(arrival.job_id, b"", arrival.digest or b"")
            dead = events.JobDead(
                **who,
                attempt=0,
                reason=Reason.conflict,
                letter_id=answer.letter_id,
                error_type=failure.error_type,
                message=failure.message,
                fingerprint=failure.fingerprint,
                traceback="",
            )
            return lambda: announce.tell_of(self.harness, dead)
        if answer.is_new:
            return lambda: emit(events.MessageReceived(**who, source=one.source.name))
        state = "dead" if answer.state is ReceiveState.conflict else str(answer.state)
        return lambda: emit(events.MessageDuplicate(**who, source=one.source.name, state=state))


def _own(error: BaseException) -> Failure:
    """Not with its text in full: it quotes the message."""
    text = str(getattr(error, "orig", None) or error).strip().splitlines()
    kind = type(getattr(error, "orig", None) or error).__name__
    return Failure(
        Kind.undecodable, kind, f"PostgreSQL can't keep it: {text[0][:500] if text else kind}", fingerprint=kind
    )


def _as_it_is(wire: Wire) -> Wire:
    return wire


def _cut(wire: Wire) -> Wire:
    plain = wire.with_plain_headers()
    body = wire.message.body
    cut = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    headers = {**plain.message.headers, "harness_cut": cut}
    return replace(plain, message=replace(plain.message, headers=headers, body=body[:KEPT_OF_ALL]))
