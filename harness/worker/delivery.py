"""One delivery in the pool's child: from the message's arguments to its outcome, and what Celery is told of it."""

import time
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore, Retry

from harness.core.errors import Unrecorded
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.process import deliver
from harness.process.copy import Copy
from harness.worker import announce, kept
from harness.worker.after import After, DeadLettered
from harness.worker.ending import pool_is_ending
from harness.worker.holding import Unpublished
from harness.worker.reply import known

if TYPE_CHECKING:
    from harness.worker.harness import Harness
    from harness.worker.task import JobTask


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
                return known(stored)
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
                interrupts=pool_is_ending,
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
