"""The options of a job, as its class says them: checked when it is bound to its app, then its spec."""

import inspect
import math
from typing import TYPE_CHECKING, Any, get_args

from celery.exceptions import Ignore, Reject

from harness.core.classify import Permanents
from harness.core.errors import ConfigError, UsageError
from harness.core.policy import Policy
from harness.process.spec import External, JobSpec, OnDead
from harness.worker import option_kinds

if TYPE_CHECKING:
    from harness.worker.task import JobTask


def check(job: "type[JobTask]", conf: Any) -> None:
    """Raise UsageError or ConfigError for options that can't be meant. `conf`: the app's configuration."""
    option_kinds.check(job)
    _limits(job, conf)
    is_external(job)
    if job.on_dead not in get_args(OnDead):
        raise UsageError(f"{job.name}: on_dead={job.on_dead!r}: it is one of {', '.join(get_args(OnDead))}.")
    most = job.max_in_flight
    if most is not None and not (type(most) is int and most > 0):
        raise UsageError(f"{job.name}: max_in_flight={most!r}: it is a whole number above 0, or None.")


def spec_of(task: "JobTask") -> JobSpec:
    """The task's spec; made when first needed, for it reads the app's settings."""
    made = task.__dict__.get("_spec")
    if made is None:
        settings = task.harness.settings
        made = task.__dict__["_spec"] = JobSpec(
            service=settings.service,
            task=task.name,
            consumer=f"{settings.service}/{task.consumer or task.name}",
            signature=task.signature_of_handler,
            policy=task.policy or Policy(),
            queue_policies=settings.policies,
            permanent=(*_several(task.permanent), _says_no),
            can_replay=_function(task, "can_replay"),
            max_replays=task.max_replays,
            max_age=task.max_age,
            on_dead=task.on_dead,
            max_in_flight=task.max_in_flight,
            external=_external(task),
        )
    return made


def _limits(job: "type[JobTask]", conf: Any) -> None:
    """A soft limit above the hard one: Celery refuses to send such a job, wherever the two come from."""
    soft, hard = job.soft_time_limit, job.time_limit
    if not soft or not hard or soft <= hard:
        return
    if soft == conf.task_soft_time_limit and hard != conf.task_time_limit:
        # The configuration's, for jobs that take longer: this one has a hard limit of its own, which comes first.
        job.soft_time_limit = None
        return
    raise ConfigError(
        f"Job {job.name}: its soft time limit ({soft:g} s: soft_time_limit=, task_soft_time_limit) is above its hard "
        f"one ({hard:g} s: time_limit=, task_time_limit). The process would be killed before it is told to end, and "
        "Celery sends no such job. Lower the first, or raise the second."
    )


def is_external(job: "type[JobTask]") -> bool:
    """Are its effects outside of the database? ConfigError for an option that can't be meant."""
    if job.effects not in ("database", "external"):
        raise ConfigError(f'Job {job.name}: effects={job.effects!r} is neither "database" nor "external".')
    external = job.effects == "external"
    if external and not _is_positive(job.time_limit):
        raise ConfigError(
            f"Job {job.name} has external effects, but time_limit={job.time_limit!r}: without a hard time limit nobody "
            "could ever tell that its handler will not come back. Give it one, in seconds: time_limit=30. That of the "
            "configuration (task_time_limit) counts, too; that of a worker's command line (--time-limit) does not."
        )
    if external and not _is_positive(job.claim_margin):
        raise ConfigError(f"Job {job.name}: claim_margin={job.claim_margin!r} must be a positive number of seconds.")
    if not external and job.unknown:
        raise ConfigError(f'Job {job.name}: unknown= is for jobs with effects="external" only.')
    return external


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _external(task: "JobTask") -> External | None:
    if task.effects != "external":
        return None
    return External(float(task.time_limit), float(task.claim_margin), _several(task.unknown))


def _several(permanent: Any) -> Permanents:
    """One exception type or predicate, or several."""
    return tuple(permanent) if isinstance(permanent, (tuple, list, set, frozenset)) else (permanent,)


def _function(task: "JobTask", name: str) -> Any:
    """A function kept as a class attribute, not bound to the task as a method."""
    found = inspect.getattr_static(task, name)
    return found.__func__ if isinstance(found, staticmethod) else found


def _says_no(error: BaseException) -> bool:
    """Celery's own words for "do not try again", which would drop the job without a trace."""
    return isinstance(error, Ignore) or (isinstance(error, Reject) and not error.requeue)
