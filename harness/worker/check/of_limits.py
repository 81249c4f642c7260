"""Checks of times: how long a job may take, and how long the broker waits for it."""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Verdict, check

#: kombu's own, in seconds.
VISIBILITY_TIMEOUT = 3600.0
#: RabbitMQ's own (consumer_timeout), in seconds.
CONSUMER_TIMEOUT = 1800.0
_MOST = 5


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"


def _longer(facts: Facts, seconds: float) -> str:
    """Which jobs may take that long or longer; '' for none."""
    limits = facts.hard_limits()
    return _some([f"{name} ({limit:g} s)" for name, limit in limits.items() if limit >= seconds])


@check(
    "time-limit",
    Verdict.warning,
    Start.says,
    about="`task_time_limit`, `time_limit=` of a job, `--time-limit`",
    means="A job that hangs holds its fence, its connection and its process for ever, and no letter tells of it.",
    do="Set task_time_limit, and time_limit= at a job that needs longer.",
)
def time_limit(facts: Facts) -> Iterator[Found]:
    without = [task.name for task in facts.jobs() if facts.hard_limit(task) is None]
    if without:
        yield f"No hard time limit: {_some(without)}."


@check(
    "soft-time-limit",
    Verdict.warning,
    Start.says,
    about="`task_soft_time_limit`, `soft_time_limit=`",
    means="The soft limit never comes: the process is killed first.",
    do="Let the soft limit be the lower one.",
)
def soft_time_limit(facts: Facts) -> Iterator[Found]:
    for task in facts.jobs():
        soft, hard = facts.soft_limit(task), facts.hard_limit(task)
        short = task.time_limit and not task.soft_time_limit  # on purpose: nobody has asked for a soft one
        if soft is not None and hard is not None and soft >= hard and not short:
            yield f"Job {task.name} has the soft limit {soft:g} s and the hard one {hard:g} s."


@check(
    "visibility-timeout",
    Verdict.warning,
    Start.says,
    about="`broker_transport_options['visibility_timeout']` (Redis)",
    means="The broker delivers a job again while it still runs. That copy finds the fence taken and steps back, but it "
    "keeps a process busy meanwhile, and each one counts as a delivery.",
    do="Set visibility_timeout above the longest hard time limit; the jobs of a killed worker wait for so long.",
)
def visibility_timeout(facts: Facts) -> Iterator[Found]:
    if facts.transport != "redis":
        return
    seconds = float(facts.transport_options.get("visibility_timeout", VISIBILITY_TIMEOUT))
    if jobs := _longer(facts, seconds):
        yield f"Redis delivers again after {seconds:g} s, but jobs may take longer: {jobs}."


@check(
    "prefetch",
    Verdict.warning,
    Start.says,
    about="`worker_prefetch_multiplier`",
    means="A worker holds jobs that it does not work on: they wait behind a slow one although other workers are idle, "
    "and may come again elsewhere meanwhile.",
    do="Set worker_prefetch_multiplier = 1.",
)
def prefetch(facts: Facts) -> Iterator[Found]:
    if facts.conf.worker_disable_prefetch:
        return
    if facts.prefetch == 0:
        yield "worker_prefetch_multiplier is 0: one worker takes the whole queue."
        return
    patience = CONSUMER_TIMEOUT
    if facts.transport == "redis":
        patience = float(facts.transport_options.get("visibility_timeout", VISIBILITY_TIMEOUT))
    longest = max(facts.hard_limits().values(), default=0.0)
    if facts.prefetch > 1 and longest * facts.prefetch >= patience > longest:
        yield (
            f"worker_prefetch_multiplier is {facts.prefetch} and a job may take {longest:g} s: the last of those that "
            f"were fetched may wait longer than the {patience:g} s after which the broker delivers it again."
        )


@check(
    "cancel-on-connection-loss",
    Verdict.warning,
    Start.says,
    about="`worker_cancel_long_running_tasks_on_connection_loss`",
    means="Jobs at work are killed when the broker's connection breaks, and begin anew: each time counts as a "
    "delivery, and after harness_max_deliveries the job is dead (crashed).",
    do="Set it to False: the job commits, and the copy that the broker sends is a duplicate.",
)
def cancel_on_connection_loss(facts: Facts) -> Iterator[Found]:
    if facts.conf.worker_cancel_long_running_tasks_on_connection_loss:
        yield "worker_cancel_long_running_tasks_on_connection_loss is on."


@check(
    "consumer-timeout",
    Verdict.warning,
    Start.no,
    part="rabbitmq",
    about="RabbitMQ's `consumer_timeout`, `x-consumer-timeout` of a queue or its policy",
    means="RabbitMQ closes the channel of a worker that holds a message for longer, and delivers all its messages "
    "again: every job in it counts a delivery, and the copies keep processes busy.",
    do="Set consumer_timeout (milliseconds) in rabbitmq.conf, or consumer-timeout in a policy, above the longest hard "
    "time limit.",
)
def consumer_timeout(facts: Facts) -> Iterator[Found]:
    assumed = [q.name for q in facts.queues() if q.arguments.get("x-consumer-timeout") is None]
    for queue in facts.queues():
        own = queue.arguments.get("x-consumer-timeout")
        if own is not None and (jobs := _longer(facts, int(own) / 1000)):
            yield f"{queue} has x-consumer-timeout = {int(own) / 1000:g} s, but jobs may take longer: {jobs}."
    if not assumed:
        return
    if jobs := _longer(facts, CONSUMER_TIMEOUT):
        yield (
            f"Jobs may take longer than {CONSUMER_TIMEOUT:g} s: {jobs}. That is RabbitMQ's default for "
            "consumer_timeout; what this server has cannot be read over the network."
        )
    else:
        yield Note(f"Assumed: RabbitMQ's default consumer_timeout, {CONSUMER_TIMEOUT:g} s; it cannot be read.")
