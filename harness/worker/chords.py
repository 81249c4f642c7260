"""A job that is part of a chord's header: its part counts once, and the body that it completes is sent for certain.

Celery's backends count the parts and send the body. Between the two a worker can die and a broker can be away; what is
here makes a second delivery of the header task find that out, and send the body after all.
"""

import time
from collections.abc import Callable
from typing import Any

from celery.backends.base import BaseKeyValueStoreBackend
from celery.backends.redis import RedisBackend
from celery.canvas import maybe_signature
from celery.states import SUCCESS

from harness.worker.behind import Behind
from harness.worker.holding import HOPELESS, Unpublished, hold
from harness.worker.naming import name_errbacks
from harness.worker.sure import surely
from harness.worker.unsent import Unsent

#: Seconds between two looks at a body that somebody else has begun to send.
LOOK = 0.5
#: Seconds by which we wait longer than Celery lets such a claim live.
MARGIN = 5.0


def name_bodies(request: Any) -> None:
    """Stable ids for the errbacks of every chord that this job's failure could fail."""
    chain = request.chain if isinstance(request.chain, (list, tuple)) else ()
    bodies = [request.chord, *(step.get("options", {}).get("chord") for step in chain if isinstance(step, dict))]
    for body in bodies:
        if isinstance(body, dict):
            name_errbacks(body)


def return_part(job: Behind, result: Any, again: bool, store: Callable[[], None]) -> None:
    """Store the result and count the part of a job that is done; `again` for a duplicate, whose part may be counted.

    Sends the body if it was the last part; a body that can't be sent has a letter. Raises Unpublished, and HOPELESS for
    a part that can't be counted.
    """
    backend, request, seconds = job.backend, job.request, job.seconds
    what = f"the result of {request.id} for its chord"
    name_bodies(request)
    body = _held(job)

    def part() -> bool:
        """Count it; False where the body is in somebody else's hand."""
        if again and _counts_blindly(backend) and backend.get_state(request.id) == SUCCESS:
            return True  # It was counted, most likely: to count it twice would send the body too early.
        store()
        backend.on_chord_part_return(request, SUCCESS, result)
        return not (again and isinstance(backend, RedisBackend) and _claimed_by_another(backend, request.group))

    deadline = time.monotonic() + _claim_lives(backend, body) + seconds if again else 0.0
    errbacks = Unsent(job.harness, job.copy, seconds, "an errback of the chord's body")
    with surely(job.harness.app, seconds, what, errbacks.of_publish):
        while not hold(part, seconds, what):
            if time.monotonic() > deadline:
                raise Unpublished(f"the body of chord {request.group} is being sent by somebody who does not end")
            time.sleep(LOOK)


def _counts_blindly(backend: Any) -> bool:
    """Does the backend count parts without asking whose they are? Redis remembers them; a database does not count."""
    return (
        isinstance(backend, BaseKeyValueStoreBackend)
        and bool(backend.implements_incr)
        and not isinstance(backend, RedisBackend)
    )


def _held(job: Behind) -> Any:
    """The body as a signature that holds on until it is published; put into the request, where Celery looks for it."""
    backend, request, seconds = job.backend, job.request, job.seconds
    body = request.chord = maybe_signature(request.chord, app=backend.app)
    send = body.apply_async

    def delay(*args: Any, **kwargs: Any) -> None:
        what = f"the body of chord {request.group}"
        unsent = Unsent(job.harness, job.copy, seconds, "the body of the chord")
        try:
            with surely(job.harness.app, seconds, what, unsent.of_publish) as sure:
                hold(lambda: send(args, kwargs), seconds, what)
        except HOPELESS as error:
            unsent.of_signature(dict(body), args, error)
            raise
        except Unpublished:
            if isinstance(backend, RedisBackend):
                # Without our claim Celery leaves the chord as it is, and the next delivery of this job sends the body.
                backend.client.delete(_claim(backend, request.group))
            raise
        if sure.given_up is not None:
            raise sure.given_up  # Celery calls the body's errbacks

    body.delay = delay
    return body


def _claim(backend: Any, group: str) -> Any:
    return backend.get_key_for_group(group, ".c")


def _claimed_by_another(backend: Any, group: str) -> bool:
    """Are all parts there, and is somebody sending the body or has died over it? Celery's claim stands for a while."""
    claim = backend.client.get(_claim(backend, group))
    return claim not in (None, b"done", "done") and bool(backend.client.exists(backend.get_key_for_group(group, ".s")))


def _claim_lives(backend: Any, body: Any) -> float:
    if not isinstance(backend, RedisBackend):
        return 0.0
    joining = backend.app.conf.result_chord_join_timeout or 5.0
    return float(backend._chord_publish_claim_expires(max(5, int(joining * 2)), body)) + MARGIN
