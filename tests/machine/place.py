"""The real side: a database, what lies with the broker, and the product's own verbs on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import psycopg2
import tenacity
from sqlalchemy import text
from sqlalchemy.orm import Session

from harness.core.alike import digest_of_json
from harness.core.errors import ConflictingJob, NotReady, Permanent, RetryLater
from harness.core.events import Events
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.policy import Policy
from harness.core.signature import Signature
from harness.enqueue.put import put
from harness.process import Copy, Job, JobSpec, deliver, record
from harness.process.busy import stand_aside
from harness.process.settle import settle_alone
from harness.prune import prune
from harness.relay.relay import Relay
from harness.replay import discard, replay
from harness.replay.errors import Refused
from harness.store.database import Database
from harness.store.enqueueing import Entry
from harness.store.inbox import Arrival, InboxRow
from harness.store.store import Store
from harness.worker import kept
from harness.worker.outgoing import past_times
from tests.machine import world
from tests.machine.faults import Faulty, Plan, install
from tests.machine.laws import Died, Said
from tests.machine.world import LIMITS, Sent
from tests.publishing import in_turn

POLICY = Policy(
    stop=tenacity.stop_after_attempt(world.TRIES),
    wait=tenacity.wait_fixed(world.WAIT),
    not_ready_wait=tenacity.wait_fixed(world.NOT_READY_WAIT),
    not_ready_deadline=world.NOT_READY_DEADLINE,
    reason="the model's",
)
RAISES: dict[str, Callable[[], BaseException]] = {
    "transient": lambda: ValueError("once more"),
    "permanent": lambda: Permanent("never"),
    "not_ready": lambda: NotReady("not yet"),
    "retry_later": lambda: RetryLater(world.LATER),
}
SHIFT = """
UPDATE core.processed_jobs SET processed_at = processed_at - :by WHERE starts_with(consumer, :service || '/');
UPDATE core.inbox SET available_at = available_at - :by, leased_until = leased_until - :by,
    created_at = created_at - :by WHERE service = :service;
UPDATE core.dead_letters SET created_at = created_at - :by, updated_at = updated_at - :by,
    resolved_at = resolved_at - :by WHERE service = :service
"""
#: What is said again and again is one entry with its number.
#: Of the bytes that are kept.
CONTENT = "(convert_from(body, 'UTF8')::json -> 1 ->> 'n')::int"
FAILURES = "(SELECT coalesce(sum(coalesce((f ->> 'times')::int, 1)), 0) FROM jsonb_array_elements(failures) f)"
VIEW = """
SELECT json_build_array(
    (SELECT json_agg(json_build_array(job_id, consumer, state, extract(epoch FROM now() - processed_at),
        encode(digest, 'hex')))
     FROM core.processed_jobs WHERE starts_with(consumer, %(service)s || '/')),
    (SELECT json_agg(json_build_array(job_id, consumer, extract(epoch FROM available_at - now()),
        extract(epoch FROM now() - created_at), generation, attempts, deliveries, dispatches,
        {FAILURES}, letter_id, extract(epoch FROM leased_until - now()), {CONTENT}))
     FROM core.inbox WHERE service = %(service)s),
    (SELECT json_agg(json_build_array(d.id, job_id, consumer, reason, attempts, deliveries,
        {FAILURES}, status, replays, extract(epoch FROM now() - resolved_at),
        jsonb_path_query_array(lineage, '$[*].event'), {CONTENT}
        ) ORDER BY d.id)
     FROM core.dead_letters d WHERE service = %(service)s),
    (SELECT json_agg(json_build_array(letter_id, action) ORDER BY id) FROM core.audit_log WHERE service = %(service)s),
    (SELECT json_agg(json_build_array(job_id, content)) FROM effects WHERE starts_with(job_id, %(service)s || '-'))
)
""".replace("{FAILURES}", FAILURES).replace("{CONTENT}", CONTENT)


def schema(url: str) -> None:
    """The table of the handlers' effects."""
    with psycopg2.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS effects (job_id text, content int)")
    connection.close()


def handler(n: int) -> None:
    """For its signature."""


def strict(n: str) -> None:
    """For one that no message fits."""


class Place:
    """One service on a database. Its clock is a number: the rows are moved when it is told to go on."""

    numbers = count(1)

    def __init__(self, url: str) -> None:
        self.service = f"m{next(self.numbers)}"
        self.database = Database(url, pool_size=4)
        install(self.database.engine)
        self.store = Store.of("core")
        self.now = 0.0
        self.eyes = psycopg2.connect(url)
        self.eyes.autocommit = True
        signature = Signature.of(handler, {})
        self.specs = {
            task: JobSpec(self.service, task, f"{self.service}/{own}", signature, POLICY)
            for task, own in (("pay", "pay"), ("mail", "letters"))
        }
        self.strict = Signature.of(strict, {})

    def close(self) -> None:
        self.database.dispose()
        self.eyes.close()

    def own(self, task: str) -> str:
        return self.specs[task].consumer

    # -- messages --------------------------------------------------------------------------------------------------

    def _time(self, at: float | None) -> datetime | None:
        return None if at is None else datetime.now(UTC) + timedelta(seconds=at - self.now)

    def _arrival(self, sent: Sent) -> Arrival:
        headers = {"id": sent.job_id, "task": sent.task}
        body = json.dumps([[], {"n": sent.content}, {}]).encode()
        message = Message(body, "application/json", "utf-8", headers, {"message": [*sent[6:]]}, "q")
        content = world.digest_of(sent.content)
        return Arrival(self.service, sent.consumer, sent.task, sent.job_id, message, digest=content)

    def _copy(self, sent: Sent, revoked: bool = False) -> Copy:
        return Copy(
            self._arrival(sent),
            sent.generation,
            sent.dispatches,
            sent.redelivered,
            self._time(sent.eta),
            self._time(sent.expires),
            self._time(sent.sent_at),
            "revoked" if revoked else None,
            "w",
            sent.goes_on,
        )

    # -- the verbs -------------------------------------------------------------------------------------------------

    def deliver(self, sent: Sent, doing: str, revoked: bool = False, inside: Callable[[], None] | None = None) -> Said:
        spec = self.specs[sent.task]

        def call(args: Any, kwargs: Any, session: Session, job: Job) -> Any:
            session.execute(text("INSERT INTO effects VALUES (:id, :content)"), {"id": job.id, "content": kwargs["n"]})
            if inside is not None:
                inside()
            if doing in RAISES:
                raise RAISES[doing]()
            return 7

        if doing == "invalid":
            spec = replace(spec, signature=self.strict)
        copy = self._copy(sent, revoked)
        keep = kept.write if sent.goes_on else None
        return said_of(
            deliver(
                self.database,
                self.store,
                copy,
                spec,
                [],
                {"n": sent.content},
                call,
                LIMITS,
                keep=keep,
                interrupts=lambda error: isinstance(error, Died),
            )
        )

    def record(self, sent: Sent, kind: str) -> Said:
        failure = Failure(Kind(kind), kind, "as the parent says")
        return said_of(record(self.database, self.store, self._copy(sent), failure, POLICY, LIMITS))

    def stand_aside(self, sent: Sent) -> Said:
        return said_of(stand_aside(self.database, self.store, self._copy(sent), LIMITS))

    def followed(self, sent: Sent) -> Said:
        return said_of(settle_alone(self.database, self.store, self._copy(sent._replace(goes_on=False)), LIMITS))

    def enqueue(self, sent: Sent, delay: float, commits: bool) -> Said:
        entry = Entry(self._arrival(sent), delay)

        def same(one: Entry, known: bytes) -> bool:
            return self.store.forms.say(one.arrival.task, one.arrival.message, known)

        steps = put(self.store.enqueueing, self.service, [entry], read, same)
        with self.database.engine.connect() as connection:
            rows: Sequence[Any] | None = None
            try:
                while True:
                    statement = steps.send(rows)
                    rows = connection.execute(statement.sql, statement.values).all()
            except StopIteration as end:
                if commits:
                    connection.commit()
                return (str(end.value[0].state),)
            except ConflictingJob:
                return ("refused", "ConflictingJob")

    def relay(self, publish: Callable[[InboxRow], None]) -> int:
        relay = Relay(
            self.database,
            self.store,
            self.service,
            in_turn(publish),
            Events(),
            lease=world.LEASE,
            longest_lease=world.LONGEST_LEASE,
        )
        return relay.step()

    def sent_by_relay(self, row: InboxRow) -> Sent:
        """The message that the relay's publisher makes of a row: of its own times it drops those that are past."""
        eta, expires, sent_at, goes_on, content = row.message.properties["message"]
        past = past_times(row)
        return Sent(
            row.job_id,
            row.task,
            row.consumer,
            row.generation,
            row.dispatches,
            False,
            None if "eta" in past else eta,
            None if "expires" in past else expires,
            sent_at,
            goes_on,
            content,
        )

    def replay(self, letter_id: int, discards: bool) -> Said:
        try:
            if discards:
                done = discard(
                    self.database, self.store, self.service, letter_id, "op", Events(), "no need", wait_ms=30
                )
            else:
                done = replay(self.database, self.store, self.service, letter_id, "op", Events(), wait_ms=30)
        except Refused as refused:
            return ("refused", type(refused).__name__)
        return (str(done),)

    def prune(self) -> Said:
        counts = prune(self.database, self.store, self.service, world.FENCE_TTL, world.LETTER_TTL, Events())
        assert counts["failed"] == 0
        return (counts["fences"], counts["letters"])

    def go_on(self, seconds: float) -> None:
        """Time passes: all rows grow older."""
        self.now += seconds
        with self.database.begin() as session:
            for statement in SHIFT.split(";"):
                session.execute(text(statement), {"by": timedelta(seconds=seconds), "service": self.service})

    def view(self) -> list[list[Any]]:
        """All that is committed: fences, rows, letters, audit, effects."""
        with self.eyes.cursor() as cursor:
            cursor.execute(VIEW, {"service": self.service})
            found = cursor.fetchone()
        assert found is not None
        return [part or [] for part in found[0]]

    @contextmanager
    def wrong(self, plan: Plan | None) -> Iterator[None]:
        """Let the next operation go wrong."""
        Faulty.plan = plan
        try:
            yield
        finally:
            Faulty.plan = None


def read(message: Message) -> bytes:
    """The digest of a stored message's arguments."""
    found = digest_of_json(message)
    assert found is not None
    return found


def said_of(outcome: Outcome) -> Said:
    """An outcome as the model says it."""
    match outcome:
        case Completed(_, attempt):
            return ("completed", attempt)
        case Duplicate():
            return ("duplicate",)
        case Stale(conflict=True):
            return ("conflict again",)
        case Stale(dead):
            return ("stale", dead)
        case Deferred(attempt, _, _, spends_try):
            return ("deferred", attempt, spends_try)
        case Dead(reason, attempts):
            return ("dead", str(reason), attempts)
    raise AssertionError(outcome)
