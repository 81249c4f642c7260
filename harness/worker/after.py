"""What comes after a job: linked tasks, the rest of its chain, its part in a chord, its errbacks, its stored result.

All of it happens behind the commit of the outcome, and again at every further delivery, which finds the outcome there:
a worker may have died in between. Every step has an id that is the same each time.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded
from celery import states
from celery.app.task import Context, get_actual_ignore_result
from celery.backends.base import DisabledBackend
from celery.canvas import maybe_signature
from celery.utils.serialization import get_pickleable_exception

from harness.core.failure import Failure
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.process.copy import Copy
from harness.process.order import pass_on
from harness.process.settle import settle_alone
from harness.store.database import DatabaseAway
from harness.worker import chords, kept
from harness.worker.correlation import passing_on
from harness.worker.holding import HOPELESS, Unpublished, hold, plainly
from harness.worker.naming import name

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")


class DeadLettered(Exception):
    """What Celery is told of a dead job whose error was no ordinary exception, or is not at hand any more."""

    @classmethod
    def of(cls, reason: Reason, failure: Failure) -> "DeadLettered":
        return cls(f"{reason}: {failure.error_type}: {failure.message}")


class After:
    """What comes after one job. `task` is None where this worker does not know it."""

    def __init__(self, harness: "Harness", task: Any, copy: Copy, request: Any) -> None:
        self.harness, self.task, self.copy, self.request = harness, task, copy, request
        self.backend = task.backend if task is not None else harness.app.backend
        self.seconds = harness.settings.limits.outage_hold

    def follow(self, outcome: Outcome, error: BaseException | None = None) -> None:
        """Do what comes after `outcome`; `error` is what the handler raised. Raises Unpublished.

        Nothing else that goes wrong here changes the outcome. What is done is taken out of the request, for Celery's
        tracer would do it a second time.
        """
        if isinstance(outcome, Deferred) or outcome == Stale(dead=False):
            return
        if outcome == Stale(conflict=True) or (isinstance(outcome, Dead) and outcome.reason is Reason.conflict):
            self._leave_nothing()  # what comes after, and the result, have the id of a job that this one is not
            return
        try:
            match outcome:
                case Completed(result):
                    self.succeeded(result)
                case Duplicate(result):
                    self.succeeded(kept.read(result), again=True)
                case Dead(reason, _, failure):
                    known = error if isinstance(error, Exception) else DeadLettered.of(reason, failure)
                    self.failed(known, failure.traceback)
                case Stale():
                    self._dead_before()
        except SoftTimeLimitExceeded as late:
            raise Unpublished(f"what comes after job {self.request.id} took too long") from late
        except Exception as wrong:
            log.error("what comes after job %s went wrong: %s", self.request.id, type(wrong).__name__)
        finally:
            self._leave_nothing()
        may_have_row = (
            self.copy.relayed or self.copy.suspicious or self.copy.claim is not None or isinstance(outcome, Duplicate)
        )
        if self.copy.goes_on and may_have_row and isinstance(outcome, (Completed, Duplicate)):
            self._remove_row()

    def succeeded(self, result: Any, *, again: bool = False) -> None:
        """Send what comes after success and store the result; `again` for a duplicate, which may find it all done.

        Raises Unpublished. What can never be sent fails, as with Celery: the job's result, its chain, its chord.
        """
        request = self.request
        with passing_on(self.copy.arrival.correlation_id):
            if result is kept.NotKept and (request.callbacks or request.chain or request.chord):
                log.error("the result of job %s was not kept: only what needs none is sent again", request.id)
            try:
                for send in self._steps(result):
                    hold(send, self.seconds, f"what comes after job {request.id}")
                if result is not kept.NotKept:
                    self._store(result, again)
            except HOPELESS as error:
                log.error("what comes after job %s can't be sent or stored: %s", request.id, type(error).__name__)
                self._fail(error, "")

    def failed(self, error: BaseException, traceback: str) -> None:
        """Call the errbacks, fail the rest of the chain and the chord, store the error. Raises Unpublished."""
        with passing_on(self.copy.arrival.correlation_id):
            self._fail(error, traceback)

    def is_stored(self) -> bool:
        """Does its result go to a result backend?"""
        return not isinstance(self.backend, DisabledBackend) and not self._ignored()

    def _dead_before(self) -> None:
        """A copy of a dead job: whoever wrote its letter may have died before it told anybody."""
        request, harness = self.request, self.harness
        if not (request.errbacks or request.chain or request.chord or self.is_stored()):
            return
        try:
            with harness.database.begin() as session:
                limit = harness.settings.limits.too_old
                letter = harness.store.letters.open_of(session, self.copy.key, younger=limit)
        except DatabaseAway as error:
            raise Unpublished(f"the letter of job {request.id} can't be read") from error
        if letter is not None:
            text = f"{letter.reason}: {letter.error_type}: {letter.error_message}"
            self.failed(DeadLettered(text), letter.traceback)

    def _remove_row(self) -> None:
        """Nothing is left to be sent. Where this fails the relay sends one more copy, which removes the row."""
        harness = self.harness
        try:
            copy = replace(self.copy, goes_on=False)
            settle_alone(harness.database, harness.store, copy, harness.settings.limits, decided=True)
            if self.copy.leaves_room:
                pass_on(harness.database, harness.store, self.copy)
        except Exception as error:
            log.warning("the inbox row of job %s stays for now: %s", self.request.id, type(error).__name__)

    def _leave_nothing(self) -> None:
        request = self.request
        request.callbacks = request.errbacks = request.chain = request.chord = None
        request.ignore_result = True

    # -- success ---------------------------------------------------------------------------------------------------

    def _steps(self, result: Any) -> list[Callable[[], Any]]:
        request = self.request
        key = self.copy.key
        priority = None
        if self.harness.app.conf.task_inherit_parent_priority:
            priority = (request.delivery_info or {}).get("priority")
        common = {"parent_id": request.id, "root_id": request.root_id or request.id, "priority": priority}

        def step(signature: Any, *path: object, **options: Any) -> None:
            made = self._signature(signature, key.consumer, key.job_id, *path)
            if made.immutable or result is not kept.NotKept:
                steps.append(lambda: made.apply_async((result,), **common, **options))

        steps: list[Callable[[], Any]] = []
        for position, one in enumerate(request.callbacks or ()):
            step(one, "link", position)
        if chain := request.chain:
            step(chain[-1], "chain", chain=chain[:-1])
        return steps

    def _store(self, result: Any, again: bool) -> None:
        request = self.request

        def store() -> None:
            if self.is_stored() and not (again and self._has_result()):
                self.backend.store_result(request.id, result, states.SUCCESS, request=request)

        if request.chord:
            chords.return_part(self.backend, request, result, self.seconds, again, store)
            return
        self._by_the_way(store, HOPELESS)

    def _has_result(self) -> bool:
        if isinstance(self.backend, DisabledBackend) or not self.backend.persistent:
            return False
        return bool(self.backend.get_state(self.request.id) == states.SUCCESS)

    # -- failure ---------------------------------------------------------------------------------------------------

    def _fail(self, error: BaseException, traceback: str) -> None:
        request, backend = self.request, self.backend
        error = get_pickleable_exception(error) if isinstance(error, Exception) else RuntimeError(repr(error))
        traceback = traceback or "".join(format_exception(error))
        errbacks, request.errbacks = request.errbacks, None
        stored = self.is_stored() or bool(getattr(self.task, "store_errors_even_if_ignored", False))
        chords.name_bodies(request)

        def mark() -> None:
            # A success under this id is another consumer's: a message without a task may carry any id.
            store = stored and not self._has_result()
            backend.mark_as_failure(
                request.id, error, traceback, request=request, store_result=store, call_errbacks=False
            )

        if request.chord or self._chain_is_in_a_chord():
            hold(lambda: self._unless_hopeless(mark), self.seconds, f"the failure of {request.id} for its chord")
        else:
            self._by_the_way(mark)
        for position, errback in enumerate(errbacks or ()):
            self._errback(errback, position, error, traceback)

    def _errback(self, errback: Any, position: int, error: Exception, traceback: str) -> None:
        request, backend, key = self.request, self.backend, self.copy.key

        def call() -> None:
            named = self._signature(errback, key.consumer, key.job_id, "errback", position)
            alone = Context(request.__dict__, errbacks=[named], chord=None, chain=None, group=None)
            backend.mark_as_failure(request.id, error, traceback, request=alone, store_result=False)

        hold(lambda: self._unless_hopeless(call), self.seconds, f"an errback of job {request.id}")

    def _chain_is_in_a_chord(self) -> bool:
        chain = self.request.chain if isinstance(self.request.chain, (list, tuple)) else ()
        return any(isinstance(step, dict) and "chord" in step.get("options", {}) for step in chain)

    # ---------------------------------------------------------------------------------------------------------------

    def _signature(self, signature: Any, *path: object) -> Any:
        if not isinstance(signature, dict):
            raise TypeError(f"no signature: {type(signature).__name__}")
        return maybe_signature(name(signature, *path), app=self.harness.app)

    def _ignored(self) -> bool:
        if self.task is not None:
            return bool(get_actual_ignore_result(self.task, self.request))
        return bool(self.request.ignore_result)

    def _by_the_way(self, do: Callable[[], None], passes: tuple[type[Exception], ...] = ()) -> None:
        """A result backend that is away must not keep a message from its acknowledgement."""
        try:
            do()
        except passes:
            raise
        except Exception as error:
            kind = type(error).__name__
            log.warning("the end of job %s is not in the result backend: %s", self.request.id, kind)

    def _unless_hopeless(self, do: Callable[[], None]) -> None:
        try:
            plainly(do)
        except HOPELESS as error:
            kind = type(error).__name__
            log.error("the failure of job %s could not be passed on: %s", self.request.id, kind)
