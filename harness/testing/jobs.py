"""`Jobs`: runs jobs inside a test's own transaction, and says what was sent, deferred and given up there."""

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self, cast

from sqlalchemy.orm import Session

from harness.core.errors import UsageError
from harness.core.message import digest
from harness.core.outcome import Outcome
from harness.replay import replay
from harness.replay.gate import arguments_of as gate_arguments
from harness.replay.gate import ask, looking
from harness.store.letter import Letter
from harness.testing.acting import as_in_a_worker
from harness.testing.rows import Clock
from harness.testing.sent import Sent, attribute, caught, dispatched
from harness.testing.servers import names_a_database
from harness.testing.watched import Watched
from harness.worker.decode import arguments_of
from harness.worker.delivery import Delivery
from harness.worker.wire import Wire, copy_of

#: A job that begets jobs, or waits in short steps for a day, must not keep a test for ever.
MOST_RUNS = 1000


@dataclass(frozen=True)
class Ran:
    """One run of a job: `task` is Celery's name."""

    job_id: str
    task: str
    outcome: Outcome


class Jobs(Watched):
    """The jobs of `app` in the transaction of `bind`, a Session or Connection (psycopg2) that the test rolls back.

        with Jobs(app, session) as jobs:
            outcome = jobs.run(credit_points, job_id="order-1", account_id=7, points=50)
            assert outcome == Completed()

    Inside the block nothing of the app reaches the broker: what is sent is in `sent`, and `drain` runs it. The
    harness's own connection is that of the test, so that its commits are savepoints and its rows go with the test.
    The fixture `harness_jobs` is this block. Raises UsageError where `bind` can't be used.
    """

    def __enter__(self) -> Self:
        if not names_a_database(self.harness):
            self.app.conf.harness_database_url = self.database.url.render_as_string(hide_password=False)
        # A connection that breaks does not come back: that is told at once.
        self.settings = self.harness.settings.model_copy(update={"outage_hold": 0.1})
        self.clock = Clock(self.settings.schema_name, self.settings.service)
        self.app.loader.import_default_modules()  # as a worker does: what is sent by name may be a job of theirs
        with ExitStack() as stack:
            stack.enter_context(attribute(self.harness, "settings", self.settings))
            stack.enter_context(attribute(self.harness, "database", self.database))
            stack.enter_context(caught(self.app, self._take))
            self._until_exit = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._until_exit.close()

    # Running

    def run(self, job: Any, /, *args: Any, job_id: str | None = None, **kwargs: Any) -> Outcome:
        """Run one delivery of a job as a worker does: serialise, validate, fence, handler, verdict.

        Returns the outcome. `job` is a job, or a signature of one where the message needs options:
        `run(credit_points.s(7, 50).set(countdown=60))`. `job_id` is Celery's task id; a new one without it. What the
        handler wrote before an error is rolled back to a savepoint; the rows of the verdict stay. Callbacks (`link`,
        chains) are not followed. Raises UsageError for what is no job, and what the serializer raises.
        """
        found: list[Sent] = []
        options = {} if job_id is None else {"task_id": job_id}
        with caught(self.app, found.append):
            job.apply_async(args, kwargs, **options)
        if not found:
            raise UsageError("Nothing was sent: task_always_eager is on. Switch it off; this helper needs no broker.")
        return self._deliver(found[0].wire).outcome

    def drain(self) -> list[Ran]:
        """Run all that was sent and all that waits, each as if its time had come, until nothing is left.

        Returns what ran, in order: a job that fails on each try is in it once a try. Runs jobs only; plain Celery tasks
        stay in `sent`. AssertionError where there is no end (1,000 runs).
        """
        return self.advance(math.inf)

    def advance(self, seconds: float) -> list[Ran]:
        """Let so many seconds pass: run what was sent, then what comes due within them, at its time and in order."""
        ran: list[Ran] = []
        left = seconds
        while (step := self._next(left)) is not None:
            wire, waited = step
            left -= waited
            ran.append(self._deliver(wire))
            if len(ran) >= MOST_RUNS:
                raise AssertionError(f"no end after {MOST_RUNS} runs; the last were {ran[-3:]}")
        return ran

    def _next(self, left: float) -> tuple[Wire, float] | None:
        """The next message to run, and the seconds until its time came; None when nothing is due within `left`."""
        while self._not_run:
            sent = self._not_run.pop(0)
            if getattr(self.app.tasks.get(sent.task), "is_job", False):
                return sent.wire, 0.0
        with self._transaction() as session:
            due = self.clock.next(session)
            wait = min(left, due[1] if due else left)
            if 0 < wait < math.inf:
                self.clock.passes(session, wait)
            if due is None or due[1] > left:
                return None
            row = self.clock.lease(session, due[0])
        if row is None:
            return None
        self._note(row)
        return dispatched(self.app, row), wait

    def _deliver(self, wire: Wire) -> Ran:
        with self._transaction():
            pass
        name, job_id = str(wire.says("task")), str(wire.says("id"))
        task = self.app.tasks.get(name)
        if task is None or not getattr(task, "is_job", False):
            raise UsageError(f"{name!r} is no job of this app. Jobs are made by @harness.job, or with base=JobTask.")
        args, kwargs = arguments_of(self.app, wire.message)
        copy = copy_of(wire, self.settings.service, task.spec.consumer)
        copy = replace(copy, arrival=replace(copy.arrival, digest=digest(args, kwargs)))
        delivery = Delivery(self.harness, task, copy, False)
        with as_in_a_worker(task, wire, args, kwargs, delivery):
            delivery.decide(list(args), dict(kwargs))
        if isinstance(self.bind, Session):
            self.bind.expire_all()
        return Ran(job_id, name, cast(Outcome, delivery.outcome))

    # Replay

    def can_replay(self, job: Any = None, *, job_id: str | None = None) -> bool:
        """What the job's gate (`can_replay=`) says of its open letter. UsageError for a job without one."""
        letter = self.assert_dead(job, job_id=job_id)
        spec = self.harness.jobs()[letter.task]
        if spec.can_replay is None:
            raise UsageError(f"{letter.task} has no gate: @harness.job(can_replay=…) makes one.")
        arguments = gate_arguments(spec, letter.message, lambda message: arguments_of(self.app, message))
        with looking(self.database) as session:
            return ask(spec, session, arguments)

    def replay(self, job: Any = None, *, job_id: str | None = None) -> list[Ran]:
        """Replay the job's open letter as an operator would, and run it with all that is due then; see `drain`."""
        letter: Letter = self.assert_dead(job, job_id=job_id)
        harness = self.harness
        replay(self.database, harness.store, self.settings.service, letter.id, "test", harness.events)
        return self.advance(0)
