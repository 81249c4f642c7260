"""Replay, discard, prune and enqueue, by processes of their own and by the workers' tasks.

A command that a fault has ended is given again, as a person or a schedule does, until there is nothing left to do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from tests.sweep.lane import DEAD, DISCARDED, DONE, PRUNED, Lane
from tests.worker.running import ROOT

_CELERY = ("-m", "celery", "-A", "tests.worker.app", "harness")


def replay_command(lane: Lane, job: str) -> dict[str, str]:
    letter = _letter(lane, job, mended=True)
    _until_over(lane, [*_CELERY, "dead-letters", "replay", str(letter)])
    return {job: DONE}


def replay_task(lane: Lane, job: str) -> dict[str, str]:
    letter = _letter(lane, job, mended=True)
    lane.sender.send_task("harness.replay", kwargs={"letter_ids": [letter]}, queue=lane.name)
    return {job: DONE}


def discard_command(lane: Lane, job: str) -> dict[str, str]:
    letter = _letter(lane, job)
    _until_over(lane, [*_CELERY, "dead-letters", "discard", str(letter), "--reason", "the sweep's"])
    return {job: DISCARDED}


def prune_command(lane: Lane, job: str) -> dict[str, str]:
    ends = _old_rows(lane, job)
    _until_over(lane, [*_CELERY, "prune"])
    return ends


def prune_task(lane: Lane, job: str) -> dict[str, str]:
    ends = _old_rows(lane, job)
    lane.sender.send_task("harness.prune", queue=lane.name)
    return ends


def producer(lane: Lane, job: str) -> dict[str, str]:
    """A producer's process that enqueues, and is started again until it has heard that its transaction committed."""
    _until_over(lane, ["-m", "tests.sweep.producer", job])
    return {job: DONE}


def enqueueing_job(lane: Lane, job: str) -> dict[str, str]:
    """A job whose handler enqueues the next one in its own transaction."""
    lane.send("first", job)
    return {job: DONE, f"{job}-next": DONE}


def _letter(lane: Lane, job: str, *, mended: bool = False) -> int:
    """Make a letter, of a job that will succeed when it is tried again if `mended`; its number."""
    switch = Path(lane.folder, f"switch-{job}")
    with lane.disarmed():
        lane.send("step", job, how="dead", switch=str(switch))
        lane.until(lambda: lane.state.letter(job) and lane.quiet(), 60, "there is a letter")
    if mended:
        switch.touch()
    return int(lane.state.letter(job).id)


def _old_rows(lane: Lane, job: str) -> dict[str, str]:
    """A fence that goes, one that an open letter keeps, and a discarded letter that goes with its fence."""
    kept, closed = f"{job}-kept", f"{job}-closed"
    with lane.disarmed():
        lane.send("credit", job)
        lane.send("permanent", kept)
        lane.send("permanent", closed)
        lane.until(
            lambda: all(lane.settled(one) for one in (job, kept, closed)) and lane.quiet(), 60, "three jobs ended"
        )
    state = lane.state
    state.sql("INSERT INTO pruned VALUES (:a), (:b)", a=job, b=closed)
    state.sql(
        "UPDATE core.dead_letters SET status = 'discarded', discard_reason = 'the sweep''s',"
        " reviewer = 'sweep', reviewed_at = now(), resolved_at = now() - interval '200 days' WHERE job_id = :id",
        id=closed,
    )
    state.sql(
        "UPDATE core.processed_jobs SET processed_at = now() - interval '30 days' WHERE job_id LIKE :id", id=f"{job}%"
    )
    return {job: PRUNED, kept: DEAD, closed: PRUNED}


def _until_over(lane: Lane, command: list[str], times: int = 4) -> None:
    """Give a command until it ends by itself: done, or refused because there is nothing left to do."""
    log = Path(lane.folder, f"command-{uuid4().hex}.log")
    for _ in range(times):
        with log.open("ab") as output:
            ended = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env=lane.worker.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                timeout=120,
            )
        text = log.read_text(errors="replace")
        if ended.returncode == 0 or (ended.returncode in (1, 4) and _nothing_left(text)):
            return
    raise AssertionError(f"the command {command[2:]} failed {times} times: {text[-1500:]}")


def _nothing_left(text: str) -> bool:
    return any(word in text for word in ("is being tried again", "is closed since"))
