"""What comes after a job that is dead: the failure of its chain and its chord, the stored error, its errbacks."""

import logging
from collections.abc import Callable
from traceback import format_exception
from typing import Any

from celery.app.task import Context
from celery.utils.serialization import get_pickleable_exception

from harness.worker import chords
from harness.worker.behind import Behind
from harness.worker.holding import HOPELESS, hold, plainly
from harness.worker.sure import surely
from harness.worker.unsent import Unsent

log = logging.getLogger("harness")


def fail(job: Behind, error: BaseException, traceback: str) -> None:
    """Fail the rest of the chain and the chord, store the error, call the errbacks. Raises Unpublished."""
    request, backend = job.request, job.backend
    error = get_pickleable_exception(error) if isinstance(error, Exception) else RuntimeError(repr(error))
    traceback = traceback or "".join(format_exception(error))
    errbacks, request.errbacks = request.errbacks, None
    stored = job.is_stored() or bool(getattr(job.task, "store_errors_even_if_ignored", False))
    chords.name_bodies(request)

    def mark() -> None:
        # A success under this id is another consumer's: a message without a task may carry any id.
        keep = stored and not job.has_result()
        backend.mark_as_failure(request.id, error, traceback, request=request, store_result=keep, call_errbacks=False)

    if request.chord or _chain_is_in_a_chord(request):
        # The errbacks of the chord's body are sent in there, by Celery: nobody would ever fire them again.
        what = f"the failure of {request.id} for its chord"
        unsent = Unsent(job.harness, job.copy, job.seconds, "an errback of the chord's body")
        with surely(job.harness.app, job.seconds, what, unsent.of_publish):
            hold(lambda: _unless_hopeless(job, mark), job.seconds, what)
    else:
        job.by_the_way(mark)
    for position, errback in enumerate(errbacks or ()):
        _call(job, errback, f"errback {position}", error, traceback)


def _call(job: Behind, errback: Any, place: str, error: Exception, traceback: str) -> None:
    request = job.request

    def call(named: Any) -> None:
        alone = Context(request.__dict__, errbacks=[named], chord=None, chain=None, group=None)
        job.backend.mark_as_failure(request.id, error, traceback, request=alone, store_result=False)

    job.send(errback, place, (request.id,), call)


def _unless_hopeless(job: Behind, do: Callable[[], None]) -> None:
    try:
        plainly(do)
    except HOPELESS as error:
        kind = type(error).__name__
        log.error("the failure of job %s could not be passed on: %s", job.request.id, kind)


def _chain_is_in_a_chord(request: Any) -> bool:
    chain = request.chain if isinstance(request.chain, (list, tuple)) else ()
    return any(isinstance(step, dict) and "chord" in step.get("options", {}) for step in chain)
