"""`JobTask`, the base class: a Celery task whose run is one delivery of a job."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn

from celery import Task
from celery.exceptions import Retry
from sqlalchemy.orm import Session

from harness.core.classify import Permanents
from harness.core.errors import HarnessError, RetryLater, UsageError
from harness.core.ids import uuid7
from harness.core.policy import Policy
from harness.core.signature import Signature
from harness.core.text import safe_repr
from harness.process.copy import Job
from harness.process.spec import JobSpec, OnDead
from harness.store.guard import WorkSession
from harness.worker import dual_write, eager, made_of, no_ttl, option_names  # noqa: F401  (no_ttl connects to a signal)
from harness.worker.correlation import CURRENT as _correlation
from harness.worker.delivery import Delivery
from harness.worker.due import take_id
from harness.worker.harness import Harness
from harness.worker.options import check as check_options
from harness.worker.options import spec_of
from harness.worker.wire import CORRELATION, SENT_AT

#: The types that a handler's parameters are annotated with to have the value injected.
INJECTED: Mapping[type, str] = {Session: "session", WorkSession: "session", Job: "job"}

_CANVAS = (
    "{what} is refused in a job: it would publish outside the transaction and give the job a second life under its "
    "own id. Return a value and let a `link` or a chain go on, or send the next job from the handler."
)


class JobTask(Task):  # type: ignore[misc]
    """Base class of jobs: `@app.task(base=JobTask)`, `@shared_task(base=JobTask)` or `Celery(task_cls=JobTask)`.

    The function's signature is the schema of its message. Parameters annotated `Session` or `Job` are injected. Its
    effects through the session are committed together with the fence, exactly once.

    Options, as class attributes or as options of the decorator:

    - `consumer`: the stable second half of the fence's key (default: the task's name). Keep the old one when renaming.
    - `policy`: a `Policy`; default 5 tries, 30 s base, 1 h cap. `permanent`: exception types or predicates that mean
      dead at once.
    - `effects="external"`: what the handler does is not in the database (an e-mail, a card charge). The job is claimed
      first, and never called again in doubt: what is not known to have ended is a letter, `outcome_unknown`. Needs a
      `time_limit`. `claim_margin` (30 s): how long after that a claim is given up. `unknown`: as `permanent`, for
      errors that leave it open whether the other side has acted; a handler may also raise `OutcomeUnknown`.
    - `can_replay(session, arguments) -> bool`: lets beat replay its letters; with `max_replays` (3) and `max_age`
      (seconds, 7 days).
    - `on_dead`: what becomes of the jobs with the same `ordering_key` when one is dead: "go_on" (default), or "block":
      they wait until its letter is closed. `max_in_flight`: so many rows of the inbox are with the broker or at work at
      once (default: `harness_max_in_flight`).

    Called directly, it is the plain function. `apply()` and `task_always_eager` run the work transaction at once,
    without retries or letters.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    # The handler's own signature has parameters that no message carries; the schema checks the arguments.
    typing = False
    # Whatever leaves a job for Celery's tracer is expected: its outcome is recorded, logged and reported already.
    throws: tuple[type[BaseException], ...] = (Exception,)
    Strategy = "harness.worker.strategy:job_strategy"
    Request = "harness.worker.request:JobRequest"

    consumer: ClassVar[str | None] = None
    policy: ClassVar[Policy | None] = None
    permanent: ClassVar[Permanents] = ()
    effects: ClassVar[str] = "database"
    unknown: ClassVar[Permanents] = ()
    claim_margin: ClassVar[float] = 30.0
    can_replay: ClassVar[Any] = None
    max_replays: ClassVar[int] = 3
    max_age: ClassVar[float] = 7 * 86_400.0
    on_dead: ClassVar[OnDead] = "go_on"
    max_in_flight: ClassVar[int | None] = None
    spec: JobSpec

    @classmethod
    def bind(cls, app: Any) -> Any:
        """Celery's, which calls `on_bound`; a class that is refused there is none of the app's tasks."""
        try:
            return super().bind(app)
        except HarnessError:
            made_of.forget(cls, app)
            raise

    @classmethod
    def on_bound(cls, app: Any) -> None:
        """Celery's hook: the class belongs to `app` now. SignatureError for a handler that can't be a job."""
        cls.is_job = bool(cls.name) and not made_of.is_celerys_own(cls)
        if not cls.is_job:
            # Celery's own tasks, which `task_cls=JobTask` turns into this class too, stay what they are.
            cls.Strategy = Task.Strategy
            cls.Request = Task.Request
            cls.acks_late = Task.acks_late
            cls.throws = Task.throws
            return
        option_names.check(cls, JobTask)
        check_options(cls, app.conf)
        if cls.effects == "external" and cls.Request == JobTask.Request:
            cls.Request = "harness.worker.request:ExternalRequest"
        # Also where the project narrows it: a retry must not be reported, a dead letter not twice.
        cls.throws = JobTask.throws
        # Celery calls an errback with more than one parameter in place, as a plain function; a job is sent.
        cls.__header__ = staticmethod(_sent_as_errback)
        function = getattr(cls, "__wrapped__", cls.run)
        bound = (
            getattr(cls, "run", None) is not None
            and "run" in cls.__dict__
            and not isinstance(cls.__dict__["run"], staticmethod)
        )
        made_of.check_class(cls, function, bound)
        cls.signature_of_handler = Signature.of(function, INJECTED, bound=bound)

    @property
    def harness(self) -> Harness:
        return Harness.of(self.app)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        delivery = Delivery.current()
        if delivery is not None and delivery.begins(self):
            return delivery.run(args, kwargs)
        if self.is_job and self.request.is_eager and not self.request.called_directly:
            return eager.run(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """Send the job. TypeError, as of a plain task, for arguments that the handler could not be called with.

        Only here: what beat and the canvas send (`apply_async`) is a letter then, where an error would be lost.
        """
        if self.is_job:
            made_of.check_call(self, args, kwargs)
        return super().delay(*args, **kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, task_id: str | None = None, **options: Any) -> Any:
        """Send the job. Its id is a UUIDv7 unless `task_id` names a natural one, such as the order's.

        Beat sends it under the name of its entry and the time that it was due.
        """
        if not self.is_job:
            return super().apply_async(args, kwargs, task_id, **options)
        dual_write.warn(self)
        headers = self.job_headers(options.pop("headers", None))
        return super().apply_async(args, kwargs, task_id or take_id() or uuid7(), headers=headers, **options)

    @staticmethod
    def job_headers(headers: Mapping[str, Any] | None) -> dict[str, Any]:
        """`headers` with those that each message of a job has: when it was sent, and what it belongs to."""
        made = dict(headers or {})
        made.setdefault(SENT_AT, datetime.now(UTC).isoformat(timespec="milliseconds"))
        if (correlation := _correlation.get()) is not None:
            made.setdefault(CORRELATION, correlation)
        return made

    def invoke(self, args: tuple[Any, ...], kwargs: dict[str, Any], session: Session, job: Job) -> Any:
        """Call the handler with validated arguments and what it wants injected."""
        args, kwargs = self.spec.signature.bind(args, kwargs, {"session": session, "job": job})
        token = _correlation.set(job.correlation_id)
        try:
            return self.run(*args, **kwargs)
        except Retry as error:
            raise RetryLater(_seconds(error.when), str(error)) from error
        finally:
            _correlation.reset(token)

    def retry(self, args: Any = None, kwargs: Any = None, exc: BaseException | None = None, **options: Any) -> NoReturn:
        """Fail this try with a delay of one's own (`countdown` or `eta`); it counts as one of the policy's tries.

        Nothing is published: the job waits in the inbox. Other options and new arguments are refused, for a job keeps
        its message.
        """
        refused = sorted(options.keys() - {"countdown", "eta", "throw", "max_retries"})
        if args is not None or kwargs is not None or refused:
            raise UsageError(
                f"retry() of a job takes exc, countdown and eta, not {', '.join(refused) or 'new arguments'}: a job "
                "keeps its id and its message over all tries. How often it is tried is said by its policy."
            )
        when = options.get("countdown", options.get("eta"))
        raise RetryLater(_seconds(when), f"retry() called: {safe_repr(exc)}" if exc else "retry() called") from exc

    def replace(self, sig: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise UsageError(_CANVAS.format(what="replace()"))

    def add_to_chord(self, sig: Any, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise UsageError(_CANVAS.format(what="add_to_chord()"))


def _sent_as_errback(task_id: str) -> None:
    """What Celery passes to an errback that it sends."""


JobTask.spec = property(spec_of)  # type: ignore[assignment]


def _seconds(when: Any) -> float:
    """Seconds from now, from Celery's countdown (a number), eta (a time) or None (the default of 3 minutes)."""
    if when is None:
        return 180.0
    if isinstance(when, datetime):
        now = datetime.now(UTC) if when.tzinfo else datetime.now()
        return max(0.0, (when - now).total_seconds())
    return max(0.0, float(when))
