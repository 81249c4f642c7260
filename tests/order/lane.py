"""Jobs of one service in a real database, step by step: what the relay would send, and what their copies do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tenacity
from sqlalchemy import text
from sqlalchemy.engine import Connection

from harness.core.events import Events
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.outcome import Outcome
from harness.core.policy import Policy
from harness.core.signature import Signature
from harness.process import Copy, Job, JobSpec, Limits, deliver, record
from harness.relay import Relay
from harness.replay import discard, replay
from harness.store import Database, Store
from harness.store.dispatch import Caps
from harness.store.enqueueing import Entry
from harness.store.inbox import Arrival, InboxRow
from harness.store.processed_jobs import Key
from tests.publishing import in_turn

SERVICE = "s"
LIMITS = Limits(fence_wait=0.3, outage_hold=3.0, busy_delay=0.0)
POLICY = Policy(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(0), reason="tests")
GOES_ON = JobSpec(SERVICE, "t", "s/t", Signature.of(lambda: None, {}), POLICY, permanent=(KeyError,))
BLOCKS = replace(GOES_ON, on_dead="block")


class Lane:
    """`sent`: what the relay has published, by job id; each `relay()` returns the ids that are new."""

    def __init__(self, url: str) -> None:
        self.database, self.store = Database(url, pool_size=8), Store.of("core")
        self.ran: list[str] = []
        self.sent: dict[str, InboxRow] = {}

    def put_on(self, connection: Connection, *names: str, key: str | None = "k", **more: Any) -> None:
        """Enqueue jobs in the transaction of `connection`."""
        entries = [Entry(self.arrival(name, key, **more)) for name in names]
        statement = self.store.enqueueing.insert(SERVICE, entries)
        assert len(connection.execute(statement.sql, statement.values).all()) == len(names)

    @staticmethod
    def arrival(name: str, key: str | None = "k", task: str = "t", **more: Any) -> Arrival:
        message = Message(b"[[],{},{}]", "application/json", "utf-8", {}, {}, "q")
        return Arrival(SERVICE, f"s/{task}", task, name, message, ordering_key=key, **more)

    def put(self, *names: str, key: str | None = "k", **more: Any) -> None:
        with self.database.engine.begin() as connection:
            self.put_on(connection, *names, key=key, **more)

    @contextmanager
    def transaction(self) -> Any:
        """A user's own, which stays open meanwhile; rolled back where nobody commits it."""
        with self.database.engine.connect() as connection:
            yield connection

    def make_relay(self, **more: Any) -> Relay:
        def publish(row: InboxRow) -> None:
            self.sent[row.job_id] = row
            self._new.append(row.job_id)

        self._new: list[str] = []
        return Relay(self.database, self.store, SERVICE, in_turn(publish), Events(), **more)

    def relay(self, lease: float = 300.0, batch: int = 100, caps: Caps | None = None) -> list[str]:
        """One batch of one relay; the ids that it has sent."""
        relay = self.make_relay(lease=lease, batch=batch, caps=lambda: caps or Caps())
        relay.step()
        return list(self._new)

    def copy(self, name: str) -> Copy:
        """The newest copy that the relay has sent of a job."""
        row = self.sent[name]
        arrival = self.arrival(name, row.ordering_key, row.task)
        return Copy(
            replace(arrival, consumer=row.consumer),
            generation=row.generation,
            dispatches=row.dispatches,
            ordered=row.ordering_key if row.place else None,
            capped=row.capped,
        )

    def copy_of_producer(self, name: str) -> Copy:
        """The same job, sent past the inbox."""
        return Copy(self.arrival(name))

    def run(
        self, name: str | Copy, then: Callable[[], Any] | None = None, spec: JobSpec = GOES_ON, fail: Any = None
    ) -> Outcome:
        """Deliver the newest copy of a job, or a given one; `then` happens while its handler runs."""
        copy = self.copy(name) if isinstance(name, str) else name

        def call(args: Any, kwargs: Any, session: Any, job: Job) -> None:
            self.ran.append(job.id)
            if then is not None:
                then()
            if fail is not None:
                raise fail

        return deliver(self.database, self.store, copy, spec, [], {}, call, LIMITS)

    def crash(self, name: str, spec: JobSpec = GOES_ON) -> Outcome:
        failure = Failure(Kind.crashed, "WorkerLost", "killed")
        blocks = spec.on_dead == "block"
        return record(self.database, self.store, self.copy(name), failure, POLICY, LIMITS, blocks=blocks)

    def replay(self, letter_id: int) -> None:
        replay(self.database, self.store, SERVICE, letter_id, "op", Events())

    def discard(self, letter_id: int) -> None:
        discard(self.database, self.store, SERVICE, letter_id, "op", Events(), "no need")

    def row(self, name: str, task: str = "t") -> InboxRow | None:
        with self.database.begin() as session:
            return self.store.inbox.find(session, Key(name, f"s/{task}"))

    def error(self, name: str) -> str | None:
        """What the relay has written of a row that it left where it is."""
        return self.one("SELECT relay_error FROM core.inbox WHERE job_id = :id", id=name)

    def all(self, sql: str, **values: Any) -> list[Any]:
        with self.database.begin() as session:
            result = session.execute(text(sql), values)
            return list(result) if result.returns_rows else []

    def one(self, sql: str, **values: Any) -> Any:
        rows = self.all(sql, **values)
        return rows[0][0] if rows else None

    def mend(self) -> int:
        return self.make_relay().mend()

    def close(self) -> None:
        self.database.dispose()
