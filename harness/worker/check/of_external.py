"""Checks of jobs with external effects."""

from collections.abc import Iterator

from kombu.utils.imports import symbol_by_name

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check
from harness.worker.request import ExternalRequest


@check(
    "external-pool",
    Verdict.broken,
    Start.refuses,
    about='`worker_pool`, `effects="external"` of a job',
    means="Only prefork can end a handler at its hard time limit. Elsewhere it could still be at work while its claim "
    "counts as abandoned and a person replays it: the call would be made twice at once.",
    do="Run these jobs on a worker with the prefork pool: celery worker -P prefork.",
)
def external_pool(facts: Facts) -> Iterator[Found]:
    external = [task.name for task in facts.jobs() if task.effects == "external"]
    if external and facts.pool != "prefork":
        yield f"The pool is {facts.pool}, and there are jobs with external effects: {', '.join(sorted(external))}."


@check(
    "external-request",
    Verdict.warning,
    Start.says,
    about="`Request` of a job with external effects",
    means="The death of a process is noticed later than it could be: the letter (outcome_unknown) is written only when "
    "the claim has run out. Nothing is called twice.",
    do="Derive the request class from harness.worker.request.ExternalRequest.",
)
def external_request(facts: Facts) -> Iterator[Found]:
    for task in facts.jobs():
        if task.effects == "external" and not issubclass(symbol_by_name(task.Request), ExternalRequest):
            yield f"Job {task.name} has the request class {task.Request}."
