"""Result backends that do not count: Celery's own task `celery.chord_unlock` sends a chord's body.

It is no job, and acknowledged before it works. Where the body is a job it is held while the broker is away, and what
can't be sent has a letter, as behind a job.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.canvas import Signature, maybe_signature

from harness.core.message import Message
from harness.process.copy import Copy
from harness.store.inbox import Arrival
from harness.store.outside import consumer_of
from harness.worker.holding import HOPELESS, Unpublished, hold
from harness.worker.sure import surely
from harness.worker.unsent import Unsent
from harness.worker.wire import CORRELATION

if TYPE_CHECKING:
    from harness.worker.harness import Harness

TASK = "celery.chord_unlock"


class BodyUnsent(Exception):
    """The body has a letter: Celery marks it as failed and calls its errbacks."""


def install(harness: "Harness") -> None:
    """Have the app's task send such bodies so; when the app is finalized, before a worker makes its tracers."""

    def wrap(sender: Any = None, **_: Any) -> None:
        task = harness.app.tasks.get(TASK)
        if task is not None and not isinstance(task.run, functools.partial):
            task.run = functools.partial(_unlock, harness, task, task.run)

    harness.app.on_after_finalize.connect(wrap, weak=False)
    if harness.app.finalized:
        wrap()


def _unlock(harness: "Harness", task: Any, usual: Callable[..., Any], group: Any, body: Any, *a: Any, **kw: Any) -> Any:
    made = maybe_signature(body, app=harness.app)
    known = harness.app.tasks.get(getattr(made, "task", None))
    if type(made) is Signature and getattr(known, "is_job", False):
        made.delay = functools.partial(_send, harness, task.request, group, made)
    return usual(group, made, *a, **kw)


def _send(harness: "Harness", request: Any, group: Any, body: Any, *args: Any) -> None:
    seconds = harness.settings.limits.outage_hold
    unsent = Unsent(harness, _copy(harness, request), seconds, f"the body of chord {group}")
    what = f"the body of chord {group}"
    try:
        with surely(harness.app, seconds, what, unsent.of_publish) as sure:
            hold(lambda: body.apply_async(args), seconds, what)
    except HOPELESS as error:
        unsent.of_signature(dict(body), args, error)
        raise
    except Unpublished as error:
        unsent.of_signature(dict(body), args, BodyUnsent(str(error)))
        raise BodyUnsent(str(error)) from error
    if sure.given_up is not None:
        raise sure.given_up


def _copy(harness: "Harness", request: Any) -> Copy:
    service = harness.settings.service
    said = getattr(request, CORRELATION, None) or (request.headers or {}).get(CORRELATION)
    correlation = said if isinstance(said, str) else None
    nothing = Message(b"", None, None, {}, {}, "")
    arrival = Arrival(service, consumer_of(service, TASK), TASK, request.id, nothing, correlation_id=correlation)
    return Copy(arrival, worker=request.hostname or "")
