"""What comes after a job: linked tasks, the rest of its chain, its part in a chord, its errbacks, its stored result.

All of it happens behind the commit of the outcome, and again at every further delivery, which finds the outcome there:
a worker may have died in between. Every step has an id that is the same each time.
"""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from billiard.exceptions import SoftTimeLimitExceeded

from harness.core.failure import Failure
from harness.core.outcome import Completed, Dead, Deferred, Duplicate, Outcome, Stale
from harness.core.reason import Reason
from harness.process.copy import Copy
from harness.process.order import pass_on
from harness.process.settle import settle_alone
from harness.store.database import DatabaseAway
from harness.worker import kept
from harness.worker.behind import Behind
from harness.worker.correlation import passing_on
from harness.worker.failing import fail
from harness.worker.holding import Unpublished
from harness.worker.naming import name
from harness.worker.onward import succeed
from harness.worker.unsent import Unsent

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
        self.harness, self.copy, self.request = harness, copy, request
        self.job = Behind(harness, task, copy, request)

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
            with passing_on(self.copy.arrival.correlation_id):
                match outcome:
                    case Completed(result):
                        succeed(self.job, result)
                    case Duplicate(result):
                        succeed(self.job, kept.read(result), again=True)
                    case Dead(reason, _, failure):
                        known = error if isinstance(error, Exception) else DeadLettered.of(reason, failure)
                        fail(self.job, known, failure.traceback)
                    case Stale():
                        self._dead_before()
        except SoftTimeLimitExceeded as late:
            raise Unpublished(f"what comes after job {self.request.id} took too long") from late
        except Exception as wrong:
            log.error("what comes after job %s went wrong: %s", self.request.id, type(wrong).__name__)
            self._bury_all(outcome, wrong)
        finally:
            self._leave_nothing()
        may_have_row = (
            self.copy.relayed or self.copy.suspicious or self.copy.claim is not None or isinstance(outcome, Duplicate)
        )
        if self.copy.goes_on and may_have_row and isinstance(outcome, (Completed, Duplicate)):
            self._remove_row()

    def _bury_all(self, outcome: Outcome, wrong: Exception) -> None:
        """Nobody has foreseen this: the letter has all steps, though some may have been sent. Raises Unpublished."""
        request = self.request
        steps = {"callbacks": request.callbacks, "chain": request.chain, "chord": request.chord}
        if not (any(steps.values()) and isinstance(outcome, (Completed, Duplicate))):
            return
        key = self.copy.key
        all_of_it = {"subtask_type": "everything", "kwargs": steps}
        named = name(all_of_it, key.consumer, key.job_id, "everything")
        Unsent(self.harness, self.copy, self.job.seconds, "what comes after").of_signature(named, (), wrong)

    def _dead_before(self) -> None:
        """A copy of a dead job: whoever wrote its letter may have died before it told anybody."""
        request, harness = self.request, self.harness
        if not (request.errbacks or request.chain or request.chord or self.job.is_stored()):
            return
        try:
            with harness.database.begin() as session:
                limit = harness.settings.limits.too_old
                letter = harness.store.letters.open_of(session, self.copy.key, younger=limit)
        except DatabaseAway as error:
            raise Unpublished(f"the letter of job {request.id} can't be read") from error
        if letter is not None:
            text = f"{letter.reason}: {letter.error_type}: {letter.error_message}"
            fail(self.job, DeadLettered(text), letter.traceback)

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
