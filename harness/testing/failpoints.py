"""Points in a job's life at which a test makes a real worker fail.

The product knows nothing of them: in a worker that a test has started, `install` wraps the product's functions, and in
every other process nothing is there. A point is armed by a file in the folder that HARNESS_FAIL_POINTS names; whoever
comes there takes the file away, so that each fires once.
"""

import hashlib
import json
import os
import signal
import time
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from harness.testing import cuts

VARIABLE = "HARNESS_FAIL_POINTS"
#: Every point: where it stands, in the order of a job's life.
POINTS = {
    "before_pool": "in the worker's parent: the message is there, no child has it yet",
    "after_pool": "in the worker's parent: it is handed to a child",
    "before_count": "a copy that was delivered again, before that is counted",
    "after_count": "when it has been counted, before the work",
    "wait_written": "the inbox has a job that waits for its eta, not committed",
    "wait_committed": "that is committed, the message not acknowledged",
    "before_fence": "the transaction is still to begin",
    "after_fence": "the fence is taken, the handler has not begun",
    "before_handler": "the handler is called now",
    "after_handler": "the handler has returned; what its session still holds is not flushed",
    "before_commit": "all is flushed, nothing committed",
    "after_commit": "the job is done, the message not acknowledged",
    "before_claim": "a job with external effects is still to be claimed",
    "claim_written": "it is claimed, and the inbox keeps its message; not committed",
    "claim_committed": "that is committed, its handler has not been called",
    "before_done": "its handler has returned, `done` is not written",
    "done_written": "`done` is written, not committed",
    "done_committed": "that is committed, the message not acknowledged",
    "before_give_up": "a claim is found that nobody will complete, which is not written down yet",
    "before_stand_aside": "another copy has held the fence for too long, which is not written down yet",
    "after_stand_aside": "the inbox keeps the job, the message is not acknowledged",
    "turn_taken": "a job with a key has its turn, and the key is locked; its handler has not been called",
    "before_turn_back": "a job with a key is out of turn, which is not written down yet",
    "after_turn_back": "the relay has its row again, the message is not acknowledged",
    "before_pass_on": "a job with a key has ended, that is committed, the next one of its key is not due yet",
    "after_pass_on": "the next one is due, the message is not acknowledged",
    "before_verdict": "the job has failed, which is not written down yet",
    "verdict_before_commit": "the deferral or the letter is written, not committed",
    "verdict_after_commit": "it is committed, the message not acknowledged",
    "before_record": "in the worker's parent: a child has died, another one is to record it",
    "after_record": "in the worker's parent: another one has it",
    "before_alert": "a letter is committed, nobody has been told",
    "after_alert": "log, Sentry and alerts have been told",
    "before_ack": "in the worker's parent: the outcome is known",
    "after_ack": "in the worker's parent: the message is acknowledged",
    "before_send": "what comes after the job (a link, a chain's next step) is still to be sent",
    "after_send": "one of the next steps is sent",
    "before_store": "the result backend has not been told of the outcome",
    "after_store": "it has been told",
    "before_row_removed": "all is sent, the inbox still has the row that remembers it",
    "after_row_removed": "the row is gone, the message not acknowledged",
    "relay_lease_written": "in the relay: a due row is leased, not committed",
    "relay_leased": "in the relay: that is committed, the row not published",
    "relay_published": "in the relay: it is published",
    "relay_before_release": "in the relay: publishing has failed, the lease is not taken back",
    "relay_after_release": "in the relay: it is taken back",
    "replay_held": "a replay has locked fence and letter",
    "replay_written": "the job is in the inbox again, not committed",
    "replay_committed": "that is committed, nobody told",
    "discard_written": "a letter is closed, not committed",
    "discard_committed": "that is committed, nobody told",
    "prune_fences_written": "old fences are deleted, not committed",
    "prune_letters_written": "old letters are deleted, not committed",
    "prune_committed": "a part of them is gone, the rest is still to be looked at",
    "before_take": "in the receiver: a message is in its hand, nothing is stored",
    "take_written": "in the receiver: its job is in the inbox, not committed",
    "take_committed": "in the receiver: that is committed, the message not acknowledged",
    "take_acknowledged": "in the receiver: it is acknowledged",
    "before_take_letter": "in the receiver: a message can't be read, its letter is not written",
    "after_take_letter": "in the receiver: the letter is committed, the message not acknowledged",
    "before_enqueue": "a producer is about to write to the inbox",
    "after_enqueue": "it has written, its transaction is not committed",
}
#: The points where an exception is the handler's own.
IN_HANDLER = ("before_handler", "after_handler")
#: Where an exception is something that the product expects: of the handler, or of the broker.
RAISING = (*IN_HANDLER, "relay_leased")
#: The points of the process that has no connection to PostgreSQL.
IN_PARENT = ("before_pool", "after_pool", "before_record", "after_record", "before_ack", "after_ack")
#: The points where nobody can say whose job it is: armed for any.
OF_NOBODY = tuple(point for point in POINTS if point.startswith(("discard_", "prune_")) or point.endswith("_enqueue"))
OF_NOBODY += ("replay_committed",)


class Fault(StrEnum):
    """What goes wrong at a point."""

    kill_process = "kill_process"
    """SIGKILL to the process that comes there: the pool's child, the parent or the relay."""
    kill_worker = "kill_worker"
    """SIGKILL to the whole worker: parent, children, relay."""
    lose_database = "lose_database"
    """The process's connections to PostgreSQL break, as by a network that fails."""
    lose_broker = "lose_broker"
    """The connections to the broker break: the process's own, and those of the worker's parent."""
    raise_error = "raise_error"
    """FailPointError: the handler's (`before_handler`, `after_handler`), or the broker's (`relay_leased`)."""


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

    @property
    def broken(self) -> int:
        """How many connections were open and have been broken."""
        files = (file.with_suffix(".broken") for file in self.files)
        return sum(int(file.read_text() or 0) for file in files if file.exists())

    def disarm(self) -> None:
        """Let it not fire any more."""
        for file in self.files:
            file.unlink(missing_ok=True)


def arm(folder: Path, point: str, fault: Fault | str, job_id: str | None = None, times: int = 1) -> FailPoint:
    """Arm a point for one job, or without `job_id` for whichever comes first. ValueError for what can't be.

    `folder` is that of a `Worker`, its `points`; another process that calls `install` has it in HARNESS_FAIL_POINTS.
    """
    fault = Fault(fault)
    if point not in POINTS:
        raise ValueError(f"there is no fail point {point!r}; there are {', '.join(POINTS)}")
    if fault is Fault.raise_error and point not in RAISING:
        text = f"raise_error is for {' and '.join(IN_HANDLER)}, and for relay_leased (the broker refuses the message)"
        raise ValueError(f"{text}: at {point!r} there is nobody who could raise it")
    if fault is Fault.lose_database and point in IN_PARENT:
        raise ValueError(f"at {point!r} the process has no connection to PostgreSQL")
    if point in OF_NOBODY and job_id is not None:
        raise ValueError(f"at {point!r} nobody knows the job: arm it without job_id")
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
        broken = _fail(fault, point, job_id)
        file.with_suffix(".broken").write_text(str(broken))
        return


def _fail(fault: Fault, point: str, job_id: str) -> int:
    """Do it; returns how many connections it has broken."""
    match fault:
        case Fault.kill_worker:
            os.killpg(os.getpgrp(), signal.SIGKILL)
        case Fault.kill_process:
            os.kill(os.getpid(), signal.SIGKILL)
        case Fault.lose_database:
            return cuts.database()
        case Fault.lose_broker:
            return cuts.broker(Path(os.environ[VARIABLE]))
        case Fault.raise_error:
            raise FailPointError(f"fail point {point} of job {job_id}")
    time.sleep(60)  # until SIGKILL has arrived
    raise AssertionError("unreachable: SIGKILL ends every process")


def install() -> None:
    """Put the points into the product, once; called before the pool forks. Nothing without HARNESS_FAIL_POINTS."""
    if os.environ.get(VARIABLE):
        _install()


@cache
def _install() -> None:
    from harness.testing.stands import put_up

    cuts.remember(Path(os.environ[VARIABLE]))
    put_up()
