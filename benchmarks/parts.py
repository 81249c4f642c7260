"""What the harness adds to a job, by part: each measured alone, in this process, by processor time.

A part's time is the lowest of several batches. That is what the code needs when nothing disturbs it; a process that
shares its processor with others pays more for the same work, in every part.
"""

import json
import logging
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from celery.app.trace import build_tracer, fast_trace_task
from kombu.serialization import prepare_accept_content
from sqlalchemy.orm import Session

from benchmarks.apps.common import LEDGER
from harness.core.ids import uuid7
from harness.core.message import Message, digest
from harness.core.outcome import Completed
from harness.process.copy import Job
from harness.store.processed_jobs import FenceState, Key
from harness.store.statements import does
from harness.worker import announce, monitor
from harness.worker.envelope import is_readable
from harness.worker.harness import Harness
from harness.worker.task import JobTask
from harness.worker.trace import Reply, trace_job
from harness.worker.wire import SENT_AT, Wire, copy_of

BATCHES, TIMES = 12, 60
TASK, CONSUMER = "bench.credit", "harness/bench.credit"
KWARGS = {"account_id": 7, "points": 50, "sent": 1.5}
BODY = json.dumps([[], KWARGS, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])


@dataclass(frozen=True)
class Part:
    """Microseconds of processor time per job, in one process: `child` or `parent`."""

    name: str
    process: str
    microseconds: float


@dataclass(frozen=True)
class Profile:
    """The parts, and a whole delivery in the child for each variant."""

    parts: list[Part]
    child: dict[str, float]


def profile(apps: dict[str, Any]) -> Profile:
    """Measure, on the database that the apps are configured for."""
    with _logging():
        return _Measured(apps).profile()


def lowest(run: Callable[[], object]) -> float:
    """Microseconds of one `run`."""
    found = []
    for _ in range(BATCHES):
        started = time.process_time()
        for _ in range(TIMES):
            run()
        found.append(time.process_time() - started)
    return min(found) / TIMES * 1e6


def lowest_told(run: Callable[[], float]) -> float:
    """Microseconds of what `run` says, in seconds, that the part of it which counts has taken."""
    return min(sum(run() for _ in range(TIMES)) for _ in range(BATCHES)) / TIMES * 1e6


class _Measured:
    def __init__(self, apps: dict[str, Any]) -> None:
        self.apps = apps
        self.harness = Harness.of(apps["harness"])
        self.task: JobTask = apps["harness"].tasks[TASK]
        apps["harness"].set_current()
        for app in apps.values():
            app.tasks[TASK].__trace__ = build_tracer(TASK, app.tasks[TASK], app.loader, "bench", app=app)

    def profile(self) -> Profile:
        child = {"unfenced": self._celery("unfenced"), "handwritten": self._celery("handwritten")}
        child["harness"] = lowest(self._delivery)
        parts = self._in_child()
        rest = child["harness"] - child["unfenced"] - sum(part.microseconds for part in parts)
        parts.append(Part("the pipe between these, a session of its own", "child", rest))
        return Profile([*parts, *self._in_parent()], child)

    def _in_child(self) -> list[Part]:
        signature = self.task.spec.signature
        wire = Wire(_message(_headers(uuid7())), False, "bench")
        copy = copy_of(wire, "harness", CONSUMER)
        job = Job("id", TASK, CONSUMER, 1, 1, "id", "bench")
        values = {"session": None, "job": job}
        done, statement = Completed(None), str(LEDGER)
        reply = Reply("completed", event=monitor.event_of(done, None, "None", 0.001))
        parts: dict[str, Callable[[], object]] = {
            "read the message, digest its arguments": lambda: copy_of(wire, "harness", CONSUMER, digest([], KWARGS)),
            "validate the arguments": lambda: signature.validate([], KWARGS),
            "bind the call": lambda: signature.bind([], KWARGS, values),
            "guard the handler's statement": lambda: does(statement),
            "tell and log the outcome": lambda: announce.outcome(self.harness, copy, done, 0.001),
            "reply with the proof": lambda: pickle.loads(pickle.dumps(reply)),
        }
        fence = Part("fence, with BEGIN", "child", lowest_told(self._fence))
        return [fence, *(Part(name, "child", lowest(run)) for name, run in parts.items())]

    def _in_parent(self) -> list[Part]:
        headers = _headers(uuid7())
        request = headers | {"delivery_info": {}, "properties": {}, "args": [], "kwargs": KWARGS}
        plain = (TASK, headers["id"], request, BODY, "application/json", "utf-8")
        ours = (TASK, headers["id"], request, Wire(_message(headers), False, "bench"), None)
        where = {"delivery_tag": "x", "delivery_info": {"exchange": "", "routing_key": "bench"}}
        envelope = json.dumps({"body": BODY, "headers": headers, "properties": where}).encode()
        more = lowest(lambda: pickle.dumps(ours)) - lowest(lambda: pickle.dumps(plain))
        return [
            Part("see that it is a message (Redis protocol)", "parent", lowest(lambda: is_readable(envelope))),
            Part("the exact message for the child", "parent", max(0.0, more)),
        ]

    def _fence(self) -> float:
        with self.harness.database.engine.connect() as connection, Session(connection) as session:
            key = Key(uuid7(), CONSUMER)
            session.connection()
            started = time.process_time()
            taken = self.harness.store.fence.take(session, key, FenceState.DONE, relayed=False, digest=bytes(32))
            spent = time.process_time() - started
            assert taken
            session.rollback()
        return spent

    def _delivery(self) -> None:
        headers = _headers(uuid7())
        wire = Wire(_message(headers), False, "bench")
        _, reply, _ = trace_job(TASK, headers["id"], headers | {"delivery_info": {}}, wire, None)
        assert reply.outcome == "completed", reply

    def _celery(self, variant: str) -> float:
        app = self.apps[variant]
        known = (app.tasks, prepare_accept_content(["json"]), "bench")

        def run() -> None:
            headers = _headers(uuid7())
            request = headers | {"delivery_info": {}}
            failed, text, _ = fast_trace_task(
                TASK, headers["id"], request, BODY, "application/json", "utf-8", _loc=known
            )
            assert not failed, text

        return lowest(run)


def _headers(job_id: str) -> dict[str, Any]:
    """As Celery's producer sends them."""
    known = {"lang": "py", "task": TASK, "id": job_id, "root_id": job_id, "retries": 0, "timelimit": [None, None]}
    nothing = dict.fromkeys(("parent_id", "group", "group_index", "shadow", "eta", "expires", "stamped_headers"))
    shown = {"argsrepr": "()", "kwargsrepr": repr(KWARGS), "origin": "bench", "ignore_result": False, "stamps": {}}
    return known | nothing | shown | {SENT_AT: datetime.now(UTC).isoformat(timespec="milliseconds")}


def _message(headers: dict[str, Any]) -> Message:
    properties = {"correlation_id": headers["id"], "priority": 0, "delivery_mode": 2}
    return Message(BODY.encode(), "application/json", "utf-8", headers, properties, "bench.harness")


@contextmanager
def _logging() -> Iterator[None]:
    """INFO lines are formatted and written, as in a worker, to nowhere."""
    root, level = logging.getLogger(), logging.getLogger().level
    with open(os.devnull, "w") as nowhere:
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(logging.Formatter("[%(asctime)s: %(levelname)s/%(processName)s] %(message)s"))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
