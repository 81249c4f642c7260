"""Checks of how messages are taken: when they are acknowledged, and what is read."""

from collections.abc import Iterator

from celery.app.defaults import DEFAULTS

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check


def _always_late(facts: Facts) -> None:
    for task in facts.jobs():
        type(task).acks_late = type(task).reject_on_worker_lost = True


@check(
    "acks-late",
    Verdict.corrected,
    Start.corrects,
    about="`acks_late`, `reject_on_worker_lost` of a job",
    means="A message that is acknowledged before its work is lost with its worker.",
    do="Nothing: for jobs both are always on. Take the option out, so that nobody is misled.",
    mend=_always_late,
)
def acks_late(facts: Facts) -> Iterator[Found]:
    for task in facts.jobs():
        off = [name for name in ("acks_late", "reject_on_worker_lost") if not getattr(task, name)]
        if off:
            yield f"Job {task.name} is defined with {' and '.join(f'{name}=False' for name in off)}."


@check(
    "acks-on-failure",
    Verdict.corrected,
    Start.no,
    about="`task_acks_on_failure_or_timeout`, `task_acks_on_failure`, `task_acks_on_timeout`",
    means="A failed job would be acknowledged, or not, by a setting instead of by its recorded outcome.",
    do="Nothing: a job's message is acknowledged when its outcome is committed, whatever these say. They still hold "
    "for tasks that are no jobs.",
)
def acks_on_failure(facts: Facts) -> Iterator[Found]:
    names = ("acks_on_failure_or_timeout", "acks_on_failure", "acks_on_timeout")
    changed = [f"task_{name}" for name in names if facts.conf.get(f"task_{name}") != DEFAULTS[f"task_{name}"]]
    for name in changed:
        yield f"{name} is {facts.conf.get(name)!r}."
    for task in facts.jobs():
        off = [name for name in names if getattr(task, name) is False]
        if off and not changed:
            yield f"Job {task.name} has {off[0]}=False."


@check(
    "always-eager",
    Verdict.broken,
    Start.refuses,
    about="`task_always_eager`",
    means="Jobs that are sent run in the sender's process at once: without a broker, retries or letters.",
    do="Set it in tests only.",
)
def always_eager(facts: Facts) -> Iterator[Found]:
    if facts.conf.task_always_eager:
        yield "task_always_eager is on."


@check(
    "accept-content",
    Verdict.warning,
    Start.says,
    about="`accept_content`",
    means="A pickle is a program: whoever can write to the broker can run code in the workers, and commit what it "
    "likes. YAML turns words into numbers, dates and booleans on its way.",
    do='Set accept_content = ["json"], once no message of the other kind is on its way.',
)
def accept_content(facts: Facts) -> Iterator[Found]:
    for kind in ("pickle", "yaml"):
        if any(kind in str(name) or (kind, str(name)) == ("pickle", _PICKLE) for name in facts.conf.accept_content):
            yield f"Workers accept {kind}."


_PICKLE = "application/x-python-serialize"
