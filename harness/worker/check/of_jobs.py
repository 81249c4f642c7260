"""Checks of the jobs and of Celery's classes that they run through."""

import difflib
import inspect
from collections import defaultdict
from collections.abc import Iterator

from celery.app.defaults import SETTING_KEYS
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.utils.imports import symbol_by_name

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check
from harness.worker.consumer import Consumer
from harness.worker.request import JobRequest
from harness.worker.settings import own_keys
from harness.worker.strategy import job_strategy

_FAMILIES = ("task_", "worker_", "broker_", "result_", "beat_", "accept_", "event_", "control_")


@check(
    "celery-settings",
    Verdict.warning,
    Start.says,
    about="names that are almost one of Celery's settings",
    means="Celery passes over a setting whose name it does not know, so what it should have changed is as before.",
    do="Correct the name, or take the line out.",
)
def celery_settings(facts: Facts) -> Iterator[Found]:
    for name, written in sorted(own_keys(facts.conf).items()):
        if not name.startswith(_FAMILIES) or name in SETTING_KEYS or callable(facts.conf.get(written)):
            continue
        # A project may keep values of its own there: only what looks like a known name is taken for a slip.
        if close := difflib.get_close_matches(name, SETTING_KEYS, n=1, cutoff=0.85):
            yield f"{written} is no setting of Celery's; is {close[0]} meant?"


@check(
    "same-consumer",
    Verdict.broken,
    Start.refuses,
    about="`consumer=` of a job, task names",
    means="Two jobs with one name at the fence take each other's messages of the same id for duplicates.",
    do="Give each job a consumer= of its own; only a job that was renamed keeps its old name.",
)
def same_consumer(facts: Facts) -> Iterator[Found]:
    by_consumer = defaultdict(list)
    for task in facts.jobs():
        by_consumer[task.spec.consumer].append(task.name)
    for consumer, names in sorted(by_consumer.items()):
        if len(names) > 1:
            yield f"The jobs {' and '.join(names)} have one consumer, {consumer!r}."


@check(
    "job-classes",
    Verdict.broken,
    Start.refuses,
    about="`Request`, `Strategy` of a job's class, a task made of a job",
    means="Messages are then acknowledged without the proof that their outcome is committed.",
    do="Remove the override (or the decorator above @harness.job), or derive the request class from "
    "harness.worker.request.JobRequest.",
)
def job_classes(facts: Facts) -> Iterator[Found]:
    for name, task in sorted(facts.harness.app.tasks.items()):
        if isinstance(inner := inspect.getattr_static(type(task), "__wrapped__", None), staticmethod):
            inner = inner.__func__
        if getattr(type(inner), "is_job", False) and not getattr(task, "is_job", False):
            yield f"The task {name} is made of the job {inner.name}, and runs its handler without a fence."
    for task in facts.jobs():
        if not issubclass(symbol_by_name(task.Request), JobRequest):
            yield f"Job {task.name} has the request class {task.Request}."
        if symbol_by_name(task.Strategy) is not job_strategy:
            yield f"Job {task.name} has the strategy {task.Strategy}."


@check(
    "consumer-class",
    Verdict.broken,
    Start.refuses,
    about="`worker_consumer`",
    means="Messages that cannot be decoded, or whose task is unknown, would be dropped with a log line.",
    do="Do not set worker_consumer, or derive the class from harness.worker.consumer.Consumer.",
)
def consumer_class(facts: Facts) -> Iterator[Found]:
    name = facts.conf.get("worker_consumer")
    used = symbol_by_name(name) if name else CeleryConsumer
    if not (isinstance(used, type) and issubclass(used, Consumer)):
        yield f"worker_consumer is {name}."
