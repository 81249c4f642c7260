"""`apply()` and `task_always_eager`: the work transaction, here and now, without a broker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from harness.core.ids import uuid7
from harness.core.message import Message, digest, job_key
from harness.core.outcome import Completed
from harness.process.copy import Copy, Job
from harness.process.failed import Failed
from harness.process.work import work
from harness.store.inbox import Arrival

if TYPE_CHECKING:
    from harness.worker.task import JobTask


def run(task: "JobTask", args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Validate, take the fence, run the handler, commit; return the result (None for a duplicate).

    There is no broker to try again and nobody else who knows of the job, so what fails is raised to the caller: no
    deferral, no letter.
    """
    harness, spec = task.harness, task.spec
    values = spec.signature.validate(args, kwargs)
    job_id = job_key(task.request.id or uuid7(), b"")
    arrival = Arrival(
        service=spec.service,
        consumer=spec.consumer,
        task=spec.task,
        job_id=job_id,
        message=Message(b"", None, None, {}, {}, "eager"),
        digest=digest(args, kwargs),
        correlation_id=job_id,
    )

    def handler(session: Session, job: Job) -> Any:
        return task.invoke(*values, session, job)

    try:
        outcome = work(harness.database, harness.store, Copy(arrival), handler, harness.settings.limits)
    except Failed as failed:
        if isinstance(failed.error, BaseException):
            raise failed.error from None
        raise
    return outcome.result if isinstance(outcome, Completed) else None
