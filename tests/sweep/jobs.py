"""Messages that bring a job to a point: each sends one and says how its jobs must end."""

from __future__ import annotations

from typing import Any

from celery import chain

from tests.sweep.lane import DEAD, DONE, KNOWN_OR_NOT, Lane


def good(lane: Lane, job: str) -> dict[str, str]:
    """A job that succeeds."""
    lane.send("credit", job)
    return {job: DONE}


def retried(lane: Lane, job: str) -> dict[str, str]:
    """A job whose first try fails: a verdict, an inbox row, the relay."""
    lane.send("fails_until", job, good=2)
    return {job: DONE}


def dead(lane: Lane, job: str) -> dict[str, str]:
    """A job that can never succeed."""
    lane.send("permanent", job)
    return {job: DEAD}


def with_eta(lane: Lane, job: str) -> dict[str, str]:
    """A job for later."""
    lane.send("credit", job, countdown=1.5)
    return {job: DONE}


def whose_child_dies(lane: Lane, job: str) -> dict[str, str]:
    """A job that kills its process at its first try: the parent has a healthy one record that."""
    lane.send("kills_child", job, times=1)
    return {job: DONE}


def outside(lane: Lane, job: str) -> dict[str, str]:
    """A job with external effects."""
    lane.send("outside", job)
    return {job: KNOWN_OR_NOT}


def beside_another_copy(lane: Lane, job: str) -> dict[str, str]:
    """A job whose fence another copy holds, uncommitted, for longer than this one waits; then that one rolls back."""
    with lane.fence_held(job):
        lane.send("credit", job)
        lane.until(lambda: lane.state.inbox(job), 60, "the copy stands aside")
    return {job: DONE}


def first_of_a_chain(lane: Lane, job: str) -> dict[str, str]:
    """A job with a next one."""
    return _chain(lane, job)


def retried_first_of_a_chain(lane: Lane, job: str) -> dict[str, str]:
    """The same by way of the inbox, whose row then remembers that something is still to be sent."""
    return _chain(lane, job, how="retry")


def _chain(lane: Lane, job: str, **kwargs: Any) -> dict[str, str]:
    def step(job_id: str, **kwargs: Any) -> Any:
        return lane.sender.signature("step", kwargs=kwargs, options={"task_id": job_id, "queue": lane.name})

    chain(step(job, **kwargs), step(f"{job}-next")).apply_async()
    return {job: DONE, f"{job}-next": DONE}
