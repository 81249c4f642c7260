"""Messages that bring a job to a point: each sends one and says how its jobs must end."""

from __future__ import annotations

from typing import Any

from celery import chain

from tests.sweep.lane import DEAD, DONE, DONE_NEXT, KNOWN_OR_NOT, Lane


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


def keyed(lane: Lane, job: str) -> dict[str, str]:
    """A job with a key, and one that comes after it."""
    lane.keyed.put(f"key of {job}", job, f"{job}-next")
    return {job: DONE, f"{job}-next": DONE_NEXT}


def keyed_outside(lane: Lane, job: str) -> dict[str, str]:
    """The same with external effects: the key goes on, known or not."""
    lane.keyed.put(f"key of {job}", job, f"{job}-next", task="outside")
    return {job: KNOWN_OR_NOT, f"{job}-next": KNOWN_OR_NOT}


def keyed_while_another_works(lane: Lane, job: str) -> dict[str, str]:
    """A job that is sent, and finds its key taken by another one that works."""
    key = f"key of {job}"
    with lane.keyed.held(key):
        lane.keyed.put(key, job, f"{job}-next")
        lane.until(lambda: not [*lane.points.glob("*.armed")], 60, "it is out of turn")
    return {job: DONE, f"{job}-next": DONE_NEXT}


def received(lane: Lane, job: str) -> dict[str, str]:
    """Somebody else's message."""
    lane.receive(job, b'{"points": 3}')
    return {job: DONE}


def received_garbage(lane: Lane, job: str) -> dict[str, str]:
    """One that nobody can read."""
    lane.receive(job, b"<points/>")
    return {job: DEAD}


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
