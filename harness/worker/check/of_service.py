"""Checks of what a service does beside its jobs: fences, pruning, replay, results."""

from collections.abc import Iterator
from datetime import timedelta

from harness.core.policy import Policy
from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Verdict, check
from harness.worker.settings import own_keys


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
