"""What comes after a job that is done: its links, the next step of its chain, its result, its part in a chord."""

import logging
from collections.abc import Iterator
from typing import Any

from celery import states

from harness.worker import chords, kept
from harness.worker.behind import Behind
from harness.worker.failing import fail
from harness.worker.holding import HOPELESS, Incomplete
from harness.worker.unsent import Unsent

log = logging.getLogger("harness")


class ResultNotKept(Incomplete):
    """A step that takes the result of a job which ran from a message without any: this copy of the job brings it."""

    def __init__(self) -> None:
        super().__init__(
            "its first argument is the job's result, which was not kept: the message that the job ran from had no next "
            "step, and there is no result backend. Find out the result and send the step yourself; then discard this"
        )


def succeed(job: Behind, result: Any, *, again: bool = False) -> None:
    """Send what comes after success and store the result; `again` for a duplicate, which may find it all done.

    Raises Unpublished. A step that can never be sent has a letter of its own and does not hold up the others. As with
    Celery the job's stored state is then a failure, and its errbacks are called; its part in a chord counts.
    """
    request = job.request
    if result is kept.HandedOn and (request.callbacks or request.chain or request.chord):
        log.error("the result of job %s has no form as JSON: only what needs none is sent again", request.id)
    errors = [error for error in _send_steps(job, result, again) if error is not None]
    try:
        if result is kept.NotKept and request.chord:
            raise ResultNotKept
        if kept.is_known(result) and not (errors and not request.chord):
            store(job, result, again)
            request.chord = None
    except HOPELESS as error:
        log.warning("the result of job %s can't be stored: %s", request.id, type(error).__name__)
        errors.insert(0, error)
        if request.chord:
            _bury_body(job, result, error)
    if errors:
        fail(job, errors[0], "")


def store(job: Behind, result: Any, again: bool) -> None:
    """Store the result, and return the part of a chord's member. Raises Unpublished, and what is HOPELESS."""
    request = job.request

    def put() -> None:
        if job.is_stored() and not (again and job.has_result()):
            job.backend.store_result(request.id, result, states.SUCCESS, request=request)

    if request.chord:
        chords.return_part(job, result, again, put)
        return
    job.by_the_way(put, HOPELESS)


def _send_steps(job: Behind, result: Any, again: bool) -> Iterator[Exception | None]:
    """One after the other; yields what was wrong with each that can't be sent."""
    request = job.request
    priority = None
    if job.harness.app.conf.task_inherit_parent_priority:
        priority = (request.delivery_info or {}).get("priority")
    common = {"parent_id": request.id, "root_id": request.root_id or request.id, "priority": priority}

    def step(signature: Any, place: str, **options: Any) -> Exception | None:
        def do(made: Any) -> None:
            if made.immutable or kept.is_known(result):
                made.apply_async((result,), **common, **options)
            elif result is kept.NotKept:
                raise ResultNotKept

        return job.send(signature, place, (result,) if kept.is_known(result) else (), do, again, **options)

    for position, one in enumerate(request.callbacks or ()):
        yield step(one, f"link {position}")
    if chain := request.chain:
        yield step(chain[-1], "chain", chain=chain[:-1])


def _bury_body(job: Behind, result: Any, error: Exception) -> None:
    """The chord fails over a part whose job is done: nothing else would tell that its body never ran."""
    unsent = Unsent(job.harness, job.copy, job.seconds, "the body of the chord")
    unsent.of_signature(dict(job.request.chord), ([result],) if kept.is_known(result) else (), error)
