"""Checks of the jobs and of what Celery does with them."""

import difflib
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from celery.app.defaults import DEFAULTS, SETTING_KEYS
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.utils.imports import symbol_by_name

from harness.core.policy import Policy
from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Verdict, check
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
    about="`Request`, `Strategy` of a job's class",
    means="Messages are then acknowledged without the proof that their outcome is committed.",
    do="Remove the override, or derive the request class from harness.worker.request.JobRequest.",
)
def job_classes(facts: Facts) -> Iterator[Found]:
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


@check(
    "fence-ttl",
    Verdict.broken,
    Start.refuses,
    about="`harness_processed_ttl`, `harness_policies`, `policy=`",
    means="A late copy could find no fence and run again.",
    do="Raise harness_processed_ttl, or bound the policy.",
)
def fence_ttl(facts: Facts) -> Iterator[Found]:
    settings = facts.settings
    policies: dict[str, Policy] = {f"job {task.name}": task.spec.policy for task in facts.jobs()}
    policies |= {f"queue {name}": policy for name, policy in settings.policies.items()}
    for who, policy in policies.items():
        window = policy.longest_window()
        if window is not None and settings.processed_ttl > window + settings.window_margin:
            continue
        span = "has no end" if window is None else f"can last {timedelta(seconds=round(window))}"
        yield (
            f"The retries of {who} {span}, but its fence is kept for {timedelta(seconds=settings.processed_ttl)} only "
            f"(harness_processed_ttl = {settings.processed_ttl:g} s), and it must be kept for longer by a margin of "
            f"{timedelta(seconds=settings.window_margin)}."
        )


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


@check(
    "pool",
    Verdict.broken,
    Start.refuses,
    about="`worker_pool` = gevent, eventlet or a class of one's own",
    means="The database driver blocks the green threads' loop, heartbeats stop, and nothing of this was proven.",
    do="Use prefork: celery worker -P prefork.",
)
def pool(facts: Facts) -> Iterator[Found]:
    if facts.pool not in ("prefork", "solo", "thread"):
        yield f"The pool is {facts.pool}."


@check(
    "pool-limits",
    Verdict.warning,
    Start.says,
    about="`worker_pool` = solo or threads",
    means="There are no hard time limits, and a crash of one job is the death of the whole worker: every job in it is "
    "delivered again, and that counts as a delivery of each.",
    do="Use prefork, the pool that the promises were proven with.",
)
def pool_limits(facts: Facts) -> Iterator[Found]:
    if facts.pool in ("solo", "thread"):
        threads = facts.pool == "thread" and facts.settings.pool_size < facts.concurrency
        few = f", with {facts.concurrency} threads but harness_pool_size = {facts.settings.pool_size}"
        yield f"The pool is {'threads' if facts.pool == 'thread' else 'solo'}{few if threads else ''}."


@check(
    "service",
    Verdict.warning,
    Start.says,
    about="`harness_service`, the app's name",
    means="Rows are kept apart by service: two apps without a name would send, replay and prune each other's jobs.",
    do='Name the app, Celery("billing"), or set harness_service.',
)
def service(facts: Facts) -> Iterator[Found]:
    if "service" in facts.harness._overrides or "harness_service" in own_keys(facts.conf):
        return
    if facts.settings.service in ("default", "celery", "tasks", "__main__"):
        yield f"The service is called {facts.settings.service!r}."


@check(
    "prune",
    Verdict.warning,
    Start.says,
    about="`harness_prune_every`",
    means="Fences are kept for ever, and their table grows by a row a job.",
    do="Leave it at its default, or run `harness prune` by a timer of your own.",
)
def prune(facts: Facts) -> Iterator[Found]:
    if facts.settings.prune_every is None:
        yield "harness_prune_every is None."


@check(
    "replay",
    Verdict.warning,
    Start.says,
    about="`harness_replay_every`, `can_replay=`",
    means="Their letters wait for a person, although their gates could decide.",
    do="Leave it at its default, or run `harness replay-sweep` by a timer of your own.",
)
def replay(facts: Facts) -> Iterator[Found]:
    gated = [task.name for task in facts.jobs() if task.can_replay is not None]
    if facts.settings.replay_every is None and gated:
        yield f"harness_replay_every is None, but there are gates (can_replay): {', '.join(gated)}."


@check(
    "chord-backend",
    Verdict.warning,
    Start.no,
    about="`result_backend`",
    means="How many of a chord's jobs are done stands in the result backend alone: what is lost or evicted there, no "
    "row in the database knows of, and the chord's body never runs. A header job that dies breaks its chord; its "
    "replay does the job, and does not start the body again.",
    do="Keep the data of the backend as safe as the broker's, and watch the dead letters of header jobs.",
)
def chord_backend(facts: Facts) -> Iterator[Found]:
    backend = facts.harness.app.backend
    kind = type(backend).__name__
    if kind == "RedisBackend" or kind == "SentinelBackend":
        yield "The result backend is Redis. It counts the jobs of a chord, each once by its id."
    elif getattr(backend, "implements_incr", False):
        yield f"The result backend {kind} counts the jobs of a chord, and counts a job twice that is delivered twice."
    elif kind == "DisabledBackend":
        yield Note("No result backend: there are no chords.")
