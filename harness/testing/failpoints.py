"""Points in a job's life at which a test makes a real worker fail.

The product knows nothing of them: in a worker that a test has started, `install` wraps the product's functions, and in
every other process nothing is there. A point is armed by a file in the folder that HARNESS_FAIL_POINTS names; whoever
comes there takes the file away, so that each fires once.
"""

import hashlib
import json
import os
import signal
import socket
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

VARIABLE = "HARNESS_FAIL_POINTS"
#: Every point: where it stands, in the order of a job's life.
POINTS = {
    "before_count": "a copy that was delivered again, before that is counted",
    "after_count": "when it has been counted, before the work",
    "before_fence": "the transaction is still to begin",
    "after_fence": "the fence is taken, the handler has not begun",
    "before_handler": "the handler is called now",
    "after_handler": "the handler has returned; what its session still holds is not flushed",
    "before_commit": "all is flushed, nothing committed",
    "after_commit": "the job is done, the message not acknowledged",
    "before_verdict": "the job has failed, which is not written down yet",
    "verdict_before_commit": "the deferral or the letter is written, not committed",
    "verdict_after_commit": "it is committed, the message not acknowledged",
    "before_ack": "in the worker's parent: the outcome is known",
    "after_ack": "in the worker's parent: the message is acknowledged",
    "before_send": "what comes after the job (a link, a chain's next step) is still to be sent",
    "after_send": "one of the next steps is sent",
    "before_store": "the result backend has not been told of the outcome",
    "after_store": "it has been told",
    "relay_leased": "in the relay: a due row is leased, not published",
    "relay_published": "in the relay: it is published",
}
#: The points where an exception is the handler's own.
IN_HANDLER = ("before_handler", "after_handler")
#: The points of the process that has no connection to PostgreSQL.
IN_PARENT = ("before_ack", "after_ack")
_connections: "weakref.WeakSet[Any]" = weakref.WeakSet()


class Fault(StrEnum):
    """What goes wrong at a point."""

    kill_process = "kill_process"
    """SIGKILL to the process that comes there: the pool's child, the parent or the relay."""
    kill_worker = "kill_worker"
    """SIGKILL to the whole worker: parent, children, relay."""
    lose_database = "lose_database"
    """The process's connections to PostgreSQL break, as by a network that fails."""
    raise_error = "raise_error"
    """FailPointError; only at `before_handler` and `after_handler`, where it is the handler's."""


class FailPointError(Exception):
    """What `Fault.raise_error` raises."""


@dataclass(frozen=True)
class FailPoint:
    """A point that was armed. `times` is how often it fires."""

    point: str
    fault: Fault
    job_id: str | None
    times: int
    files: tuple[Path, ...]

    @property
    def fired(self) -> int:
        """How often it has fired."""
        return sum(file.with_suffix(".fired").exists() for file in self.files)

    def disarm(self) -> None:
        """Let it not fire any more."""
        for file in self.files:
            file.unlink(missing_ok=True)


def arm(folder: Path, point: str, fault: Fault | str, job_id: str | None = None, times: int = 1) -> FailPoint:
    """Arm a point for one job, or without `job_id` for whichever comes first. ValueError for what can't be."""
    fault = Fault(fault)
    if point not in POINTS:
        raise ValueError(f"there is no fail point {point!r}; there are {', '.join(POINTS)}")
    if fault is Fault.raise_error and point not in IN_HANDLER:
        raise ValueError(f"raise_error is for {' and '.join(IN_HANDLER)}: at {point!r} no code of yours could raise it")
    if fault is Fault.lose_database and point in IN_PARENT:
        raise ValueError(f"at {point!r} the process has no connection to PostgreSQL")
    number = time.monotonic_ns()
    files = tuple(folder / f"{point}.{_mark(job_id)}.{number}-{index}.armed" for index in range(times))
    for file in files:
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps({"fault": fault, "job_id": job_id}))
        draft.rename(file)
    return FailPoint(point, fault, job_id, times, files)


def _mark(job_id: str | None) -> str:
    """An id as a part of a file's name."""
    return "any" if job_id is None else hashlib.sha256(job_id.encode()).hexdigest()[:32]


def hit(point: str, job_id: str) -> None:
    """Fail here, if this point is armed for this job."""
    folder = Path(os.environ[VARIABLE])
    armed = sorted([*folder.glob(f"{point}.{_mark(job_id)}.*.armed"), *folder.glob(f"{point}.any.*.armed")])
    for file in armed:
        try:
            fault = Fault(json.loads(file.read_text())["fault"])
            file.rename(file.with_suffix(".fired"))  # refused to all but one process
        except FileNotFoundError:
            continue
        _fail(fault, point, job_id)
        return


def _fail(fault: Fault, point: str, job_id: str) -> None:
    match fault:
        case Fault.kill_worker:
            os.killpg(os.getpgrp(), signal.SIGKILL)
            time.sleep(60)
        case Fault.kill_process:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        case Fault.lose_database:
            for connection in list(_connections):
                _break(connection)
        case Fault.raise_error:
            raise FailPointError(f"fail point {point} of job {job_id}")


def _break(connection: Any) -> None:
    """End the socket under the driver's connection; the driver notices when it is used next."""
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def wrap(owner: Any, name: str, job_of: Callable[..., str], before: str = "", after: str = "") -> None:
    """Put the points around `owner.name`; `job_of` finds the job id in its arguments."""
    function = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before:
            hit(before, job_of(*args))
        result = function(*args, **kwargs)
        if after:
            hit(after, job_of(*args))
        return result

    setattr(owner, name, wrapped)


def install() -> None:
    """Wrap what the points stand around, once; called before the pool forks. Nothing without HARNESS_FAIL_POINTS."""
    if not os.environ.get(VARIABLE):
        return
    _install()


@cache
def _install() -> None:
    from harness.store.guard import GuardedConnection
    from harness.worker import after, chords
    from harness.worker.publisher import Publisher
    from harness.worker.request import JobRequest
    from harness.worker.task import JobTask

    # By name: the package has functions that are called as their modules.
    deliver, verdict, work = (import_module(f"harness.process.{name}") for name in ("deliver", "verdict", "work"))

    def of_copy(first: Any, second: Any, copy: Any, *_: Any) -> str:
        return str(copy.key.job_id)

    wrap(work, "_take", lambda _session, _store, copy, _limits: copy.key.job_id, "before_fence", "after_fence")
    wrap(JobTask, "invoke", lambda _task, _args, _kwargs, _session, job: job.id, *IN_HANDLER)
    wrap(work, "_call", lambda _session, _connection, _handler, job: job.id, after="before_commit")
    wrap(work, "_once", of_copy, after="after_commit")
    wrap(deliver, "count", of_copy, "before_count", "after_count")
    wrap(verdict, "_record", of_copy, after="verdict_before_commit")
    wrap(deliver, "verdict", of_copy, "before_verdict", "verdict_after_commit")
    wrap(JobRequest, "acknowledge", lambda request: request.id, "before_ack", "after_ack")
    for module in (after, chords):
        # The last word says whose it is: the job, or for a chord's body its group.
        wrap(module, "hold", lambda _do, _seconds, what: what.split()[-1], "before_send", "after_send")
    wrap(after.After, "_store", lambda one, *_: one.request.id, "before_store", "after_store")
    wrap(Publisher, "_send", lambda _publisher, row: row.job_id, "relay_leased", "relay_published")
    _remember_connections(GuardedConnection)


def _remember_connections(kind: Any) -> None:
    make = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        _connections.add(self)

    kind.__init__ = init
