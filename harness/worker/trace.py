"""In the pool's child: a message becomes a delivery; its outcome becomes Celery's state and the reply to the parent.

The parent acknowledges on the reply alone. So nothing that Celery does around the handler (result backend, signals,
hooks) can make or unmake an outcome: it is committed before they see it, and kept here whatever they raise.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from billiard import common as billiard_common
from celery import current_app
from celery.app.task import Context
from celery.exceptions import Ignore, Retry
from celery.utils.saferepr import saferepr

from harness.core.classify import classify
from harness.core.errors import Unrecorded
from harness.core.failure import Failure, Kind
from harness.core.message import digest
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.payload import wrong_shape
from harness.core.policy import Policy
from harness.core.reason import Reason
from harness.process import deliver, record
from harness.process.copy import Copy
from harness.worker import announce, kept, monitor
from harness.worker.after import After, DeadLettered
from harness.worker.asked import asks_result, check_steps, goes_on, request_of
from harness.worker.decode import payload_of
from harness.worker.holding import Unpublished
from harness.worker.wire import Wire, copy_of

if TYPE_CHECKING:
    from harness.worker.harness import Harness
    from harness.worker.task import JobTask

log = logging.getLogger("harness")


class Reply(NamedTuple):
    """The proof that the parent acts on: `outcome` is committed. `event` is what Celery's monitors are told of it.

    `outcome` is one of completed, duplicate, stale, deferred, dead; or unrecorded: nothing is committed, or what comes
    after the job is not sent: do not ack, and `text` says why.
    """

    outcome: str
    text: str = ""
    event: monitor.Event | None = None


class Delivery:
    """One delivery in this process, from the message to the reply."""

    _current: ContextVar["Delivery | None"] = ContextVar("harness_delivery", default=None)

    def __init__(self, harness: "Harness", task: "JobTask", copy: Copy, ask_result: bool) -> None:
        self.harness, self.task, self.copy, self.ask_result = harness, task, copy, ask_result
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.unrecorded: Unrecorded | Unpublished | None = None
        self.followed = False
        self._begun = False

    @classmethod
    def current(cls) -> "Delivery | None":
        return cls._current.get()

    def begins(self, task: Any) -> bool:
        """Is this call of `task` the delivery's own run, not a nested call of the handler?"""
        return self.task is task and not self._begun

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Bring the delivery to its outcome and tell Celery's tracer of it: a value, Retry, Ignore or an exception."""
        self.decide(args, kwargs)
        self.follow(self.task.request)
        match self.outcome:
            case Completed(result):
                return result
            case Duplicate(stored):
                return _known(stored)
            case Stale():
                raise Ignore
            case Deferred(_, delay, failure):
                raise Retry(failure.message, self.error, when=delay)
            case Dead(Reason.conflict):
                raise Ignore
            case Dead(reason, _, failure):
                if isinstance(self.error, Exception):
                    raise self.error
                raise DeadLettered.of(reason, failure)
        raise AssertionError("a delivery that was decided has an outcome")

    def decide(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Run the pipe once; `outcome` holds what was committed. Raises Unrecorded."""
        self._begun = True
        started = time.perf_counter()
        harness, copy = self.harness, self.copy
        try:
            self.outcome = deliver(
                harness.database,
                harness.store,
                copy,
                self.task.spec,
                args,
                kwargs,
                self._call,
                harness.settings.limits,
                keep=kept.write if self.ask_result else None,
                interrupts=_pool_is_ending,
                patience=lambda: self._patience(started),
            )
        except Unrecorded as error:
            self.unrecorded = error
            raise
        announce.outcome(harness, copy, self.outcome, time.perf_counter() - started)

    def follow(self, request: Any) -> None:
        """Do what comes after the outcome: once for this delivery, whatever Celery's tracer does around it."""
        self.followed = True
        if self.outcome is None or (isinstance(self.outcome, Completed) and not self.ask_result):
            return
        try:
            After(self.harness, self.task, self.copy, request).follow(self.outcome, self.error)
        except Unpublished as error:
            self.unrecorded = error

    def _patience(self, started: float) -> float:
        """Seconds to hold the message: a time limit that is hit meanwhile would count as a try of the job."""
        hold = self.harness.settings.limits.outage_hold
        own = self.task.request.timelimit or (None, None)
        bounds = [bound for bound in (own[0] or self.task.time_limit, own[1] or self.task.soft_time_limit) if bound]
        left = min(bounds, default=float("inf")) - (time.perf_counter() - started)
        return max(0.0, min(hold, left / 2))

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], session: Any, job: Any) -> Any:
        self.error = None
        try:
            return self.task.invoke(args, kwargs, session, job)
        except BaseException as error:
            self.error = error
            raise


def trace_job(name: str, uuid: str, request: dict[str, Any], wire: Wire, decoded: Any) -> tuple[int, Reply, float]:
    """What the parent submits to the pool for a job: `(0, Reply, seconds)`. Raises only when the pool ends us."""
    from harness.worker.harness import Harness

    started = time.monotonic()
    app = current_app._get_current_object()
    task, harness = app.tasks[name], Harness.of(app)
    service, consumer = harness.settings.service, task.spec.consumer
    try:
        args, kwargs, embed = decoded or payload_of(wire.message, harness.accepts)
        if (problem := wrong_shape(args, kwargs, ())) is not None:
            copy = copy_of(wire, service, consumer)
            return 0, _buried(harness, task, copy, classify(problem), Policy(), wire), 0.0
        args, kwargs, embed = list(args), dict(kwargs), dict(embed or {})
        comes_after = goes_on(embed)
        if comes_after or embed.get("errbacks"):
            check_steps(embed)
    except Exception as error:
        undecodable = Failure(Kind.undecodable, type(error).__name__, str(error))
        return 0, _buried(harness, task, copy_of(wire, service, consumer), undecodable, Policy(), wire), 0.0
    copy = copy_of(wire, service, consumer, digest(args, kwargs))
    if comes_after:
        copy = replace(copy, goes_on=True)
    delivery = Delivery(harness, task, copy, asks_result(task, request, embed))
    token = Delivery._current.set(delivery)
    try:
        request.update({"args": args, "kwargs": kwargs, "hostname": wire.worker, "is_eager": False}, **embed)
        _through_celery(task, uuid, args, kwargs, request)
        if delivery.outcome is None and delivery.unrecorded is None:
            # Celery did not come as far as the handler: a signal or the result backend was in the way.
            with contextlib.suppress(Unrecorded):
                delivery.decide(args, kwargs)
        if not delivery.followed:
            delivery.follow(Context(request))
        return 0, _reply(delivery, time.monotonic() - started), time.monotonic() - started
    finally:
        Delivery._current.reset(token)


def record_message(wire: Wire, failure: Failure, name: str | None, follow: bool = True) -> tuple[int, Reply, float]:
    """What the parent submits for a message whose child died, or that no child can run.

    Without `follow` nothing is sent after it: the parent has seen that its body can't even be looked at.
    """
    from harness.worker.harness import Harness

    app = current_app._get_current_object()
    harness = Harness.of(app)
    task = app.tasks.get(name) if name else None
    spec = task.spec if task is not None and getattr(task, "is_job", False) else None
    copy = copy_of(wire, harness.settings.service, spec.consumer if spec else None)
    policy = spec.policy_for(wire.message.queue) if spec else Policy()
    if not follow:
        return 0, _record(harness, copy, failure, policy, _blocks(task))[0], 0.0
    return 0, _buried(harness, task, copy, failure, policy, wire), 0.0


def _through_celery(task: Any, uuid: str, args: Any, kwargs: Any, request: dict[str, Any]) -> None:
    try:
        task.__trace__(uuid, args, kwargs, request)
    except BaseException as error:
        if _pool_is_ending(error):
            raise
        log.warning("Celery raised %s around job %s; its outcome stands", type(error).__name__, uuid)


def _buried(harness: "Harness", task: Any, copy: Copy, failure: Failure, policy: Policy, wire: Wire) -> Reply:
    """Record the failure, then do what comes after the outcome. Only here is the body looked at: behind the commit."""
    copy = replace(copy, goes_on=True)  # nobody knows yet
    reply, outcome = _record(harness, copy, failure, policy, _blocks(task))
    request = request_of(wire, harness.accepts) if outcome is not None else None
    if outcome is None or request is None:
        return reply
    try:
        After(harness, task, copy, request).follow(outcome)
    except Unpublished as error:
        return Reply("unrecorded", str(error))
    return reply


def _blocks(task: Any) -> bool:
    return getattr(task, "on_dead", None) == "block"


def _record(
    harness: "Harness", copy: Copy, failure: Failure, policy: Policy, blocks: bool
) -> tuple[Reply, Outcome | None]:
    payload = {"body": copy.arrival.message.body}
    try:
        outcome = record(
            harness.database,
            harness.store,
            copy,
            failure,
            policy,
            harness.settings.limits,
            payload,
            blocks=blocks,
        )
    except Unrecorded as error:
        log.error("%s", error)
        return Reply("unrecorded", str(error)), None
    announce.outcome(harness, copy, outcome, 0.0)
    return _said(outcome, None, 0.0), outcome


def _reply(delivery: Delivery, seconds: float) -> Reply:
    if delivery.outcome is None or delivery.unrecorded is not None:
        return Reply("unrecorded", str(delivery.unrecorded))
    return _said(delivery.outcome, delivery.error, seconds)


def _said(outcome: Outcome, error: BaseException | None, seconds: float) -> Reply:
    result = ""
    match outcome:
        case Completed(value):
            result = "None" if value is None else saferepr(value, monitor.LONGEST)
        case Duplicate(stored) if stored is not None:
            result = saferepr(_known(stored), monitor.LONGEST)
    return Reply(type(outcome).__name__.lower(), event=monitor.event_of(outcome, error, result, seconds))


def _known(stored: object) -> Any:
    found = kept.read(stored)
    return None if found is kept.NotKept else found


def _pool_is_ending(error: BaseException) -> bool:
    """The pool's own signal handler has begun to end this process: the job has not failed, it is cut off."""
    return isinstance(error, SystemExit) and billiard_common.terminate_handler_fired()
