"""A database with jobs and dead letters in it, for the tests of what is done with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from harness.core.events import Event, Events
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.process.spec import JobSpec
from harness.store.database import Database
from harness.store.inbox import Arrival
from harness.store.processed_jobs import FenceState, Key
from harness.store.store import Store

SERVICE = "billing"


def message(job_id: str, task: str = "pay", args: list[Any] | None = None, **kwargs: Any) -> Message:
    """As Celery sends it."""
    body = json.dumps([args or [], kwargs, {"callbacks": None}]).encode()
    return Message(body, "application/json", "utf-8", {"id": job_id, "task": task}, {"priority": 0}, "payments")


def arrival(job_id: str, task: str = "pay", service: str = SERVICE, **more: Any) -> Arrival:
    """A job of the service."""
    sent = more.pop("message", None) or message(job_id, task, account=7)
    return Arrival(service, f"{service}/{task}", task, job_id, sent, **more)


@dataclass
class Place:
    """One migrated database and what stands in it."""

    url: str
    told: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.database = Database(self.url, pool_size=4)
        self.store = Store.of("core")
        self.events = Events()
        self.events.subscribe(self.told.append)

    def fence(self, job_id: str, state: FenceState, task: str = "pay", service: str = SERVICE) -> None:
        """Put a fence there, or change the one that is."""
        key = Key(job_id, f"{service}/{task}")
        with self.database.begin() as session:
            if not self.store.fence.take(session, key, state, relayed=False):
                self.store.fence.set_state(session, key, state)

    def dead(self, job_id: str, task: str = "pay", service: str = SERVICE, **more: Any) -> int:
        """A dead job: its fence, its letter, its audit row. Returns the letter's number."""
        where = arrival(job_id, task, service, **{k: v for k, v in more.items() if k not in ("reason", "error")})
        failure = Failure(Kind.transient, more.get("error", "Timeout"), "no answer", "Traceback …", "f1f2f3f4")
        entry = failure.to_dict() | {"at": "2026-01-01T10:00:00.000+00:00", "attempt": 5, "worker": "w1@host"}
        self.fence(job_id, FenceState.DEAD, task, service)
        with self.database.begin() as session:
            return self.store.letters.write(
                session,
                where,
                reason=more.get("reason", Reason.exhausted),
                attempts=5,
                deliveries=1,
                failures=[entry],
                payload={"args": [], "kwargs": {"account": 7}},
            )

    def done(self, job_id: str, task: str = "pay", service: str = SERVICE) -> None:
        """The job has succeeded after all, and its letter is still open."""
        self.fence(job_id, FenceState.DONE, task, service)

    def wait(self, job_id: str, task: str = "pay", service: str = SERVICE) -> None:
        """A job that waits in the inbox."""
        self.fence(job_id, FenceState.WAITING, task, service)
        with self.database.begin() as session:
            assert self.store.inbox.add(session, arrival(job_id, task, service), fresh=True)

    def run(self, statement: str, **values: Any) -> list[Any]:
        """SQL in a transaction of its own; the rows."""
        with self.database.begin() as session:
            result = session.execute(text(statement), values)
            return list(result) if result.returns_rows else []

    def one(self, statement: str, **values: Any) -> Any:
        """The single value of a query."""
        [[value]] = self.run(statement, **values)
        return value

    def letter(self, letter_id: int, service: str = SERVICE) -> Any:
        """The letter as it stands."""
        with self.database.begin() as session:
            return self.store.letters.get(session, service, letter_id)

    def state(self, job_id: str, task: str = "pay", service: str = SERVICE) -> FenceState | None:
        """The state of the job's fence."""
        with self.database.begin() as session:
            row = self.store.fence.look(session, Key(job_id, f"{service}/{task}"))
            return row.state if row else None

    def waiting(self, job_id: str, task: str = "pay", service: str = SERVICE) -> Any:
        """The job's inbox row."""
        with self.database.begin() as session:
            return self.store.inbox.find(session, Key(job_id, f"{service}/{task}"))

    def audit(self, letter_id: int) -> list[tuple[str, str, str | None]]:
        """What was done to the letter: action, actor, reason."""
        with self.database.begin() as session:
            rows = self.store.audit.of_letter(session, letter_id)
        return [(row["action"], row["actor"], row["reason"]) for row in rows]


def decode(sent: Message) -> tuple[list[Any], dict[str, Any]]:
    """As the worker layer does it for JSON."""
    args, kwargs, _ = json.loads(sent.body)
    return args, kwargs


def job(
    gate: Callable[[Session, Mapping[str, Any]], bool] | None, task: str = "pay", **more: Any
) -> dict[str, JobSpec]:
    """A registry of one job: `pay(session, account, points=1)`."""

    def pay(session: Session, account: int, points: int = 1) -> None: ...

    signature = Signature.of(pay, {Session: "session"})
    return {task: JobSpec(SERVICE, task, f"{SERVICE}/{task}", signature, can_replay=gate, **more)}
