"""Checks of the queues: does one lose jobs by itself?"""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Note, Start, Unknown, Verdict, check
from harness.worker.check.queues import QueueFacts

_DAY = 86_400.0


@check(
    "queue-durable",
    Verdict.broken,
    Start.refuses,
    about="`durable`, `exclusive`, `auto_delete` in `task_queues` (RabbitMQ)",
    means="A restart of the broker, or the end of the last worker, deletes the queue and the jobs in it.",
    do="Declare it durable, neither exclusive nor auto-deleted; the old queue must be deleted first.",
)
def queue_durable(facts: Facts) -> Iterator[Found]:
    if facts.transport != "amqp":
        return
    for queue in facts.queues():
        bad = [
            name
            for name, is_bad in (
                ("not durable", not queue.durable),
                ("exclusive", queue.exclusive),
                ("auto-deleted", queue.auto_delete),
            )
            if is_bad
        ]
        if bad:
            yield f"{_big(queue)} is {' and '.join(bad)}."


@check(
    "queue-no-ack",
    Verdict.broken,
    Start.refuses,
    about="`no_ack` in `task_queues`",
    means="A message is gone when a worker fetches it: what a killed worker held is lost without a trace.",
    do="Take no_ack out.",
)
def queue_no_ack(facts: Facts) -> Iterator[Found]:
    for queue in facts.queues():
        if queue.no_ack:
            yield f"{_big(queue)} has no_ack."


@check(
    "queue-drops",
    Verdict.broken,
    Start.refuses,
    about="`x-message-ttl`, `x-expires`, `x-max-length`, `x-max-length-bytes` of a queue or its policy (RabbitMQ)",
    means="The broker drops jobs by itself, without a trace.",
    do="Take it out. Where a queue must be bounded: x-overflow = reject-publish, with confirm_publish at the senders.",
)
def queue_drops(facts: Facts) -> Iterator[Found]:
    if facts.transport != "amqp":
        return
    for queue in facts.queues():
        limits = _dropping(queue)
        if limits and (queue.dead_letter_exchange is None or "x-expires" in queue.arguments):
            yield f"{_big(queue)} has {', '.join(limits)}."


@check(
    "queue-dead-letter-exchange",
    Verdict.warning,
    Start.says,
    about="`x-dead-letter-exchange` of a queue with limits (RabbitMQ)",
    means="What the queue drops goes there and not to dead_letters: `harness dead-letters` does not show it.",
    do="Take the queue's limits out, or watch where that exchange leads to.",
)
def queue_dead_letter_exchange(facts: Facts) -> Iterator[Found]:
    if facts.transport != "amqp":
        return
    for queue in facts.queues():
        limits = _dropping(queue)
        limits += [f"x-delivery-limit = {limit}"] if (limit := _delivery_limit(facts, queue)) is not None else []
        if limits and queue.dead_letter_exchange is not None:
            yield f"{_big(queue)} has {', '.join(limits)}, and the dead-letter exchange {queue.dead_letter_exchange!r}."


@check(
    "delivery-limit",
    Verdict.broken,
    Start.refuses,
    about="`x-delivery-limit` of a quorum queue or its policy, `harness_outage_hold`",
    means="While PostgreSQL is away a message goes back to the broker every harness_outage_hold seconds. The queue "
    "counts that, and drops the message without a trace when the limit is passed.",
    do="Set a policy with delivery-limit: -1 (RabbitMQ 4), or a limit of some thousands; the harness itself bounds "
    "the deliveries of a job (harness_max_deliveries).",
)
def delivery_limit(facts: Facts) -> Iterator[Found]:
    if facts.transport != "amqp":
        return
    for queue in facts.queues():
        limit = _delivery_limit(facts, queue)
        if limit is None or queue.dead_letter_exchange is not None:
            continue
        lasts = limit * facts.settings.outage_hold
        if lasts < _DAY:
            said = "x-delivery-limit" if queue.arguments.get("x-delivery-limit") is not None else "RabbitMQ 4's default"
            yield (
                f"{_big(queue)} is a quorum queue that delivers a message {limit} times ({said}): enough for an "
                f"outage of {lasts / 60:.0f} min."
            )


@check(
    "queue-policies",
    Verdict.warning,
    Start.no,
    part="rabbitmq",
    about="policies of RabbitMQ, read over its management API (`--management`)",
    means="A policy may set limits on the queue that the configuration does not show.",
    do="Name the management API: harness check --management http://host:15672",
)
def queue_policies(facts: Facts) -> Iterator[Found]:
    server = facts.rabbitmq
    assert server is not None
    if server.api_problem:
        yield Unknown(
            f"RabbitMQ {server.version_text} answers, but its queues' policies cannot be read: {server.api_problem}. "
            "The queues are assumed to be as they are configured."
        )
    elif server.missing:
        yield Note(f"Not there yet; a worker declares them: {', '.join(server.missing)}.")


@check(
    "default-queue",
    Verdict.warning,
    Start.says,
    about="`task_default_queue`, `-Q`",
    means="That is the default of every Celery app: two services on one broker would take each other's jobs, which are "
    "then dead as unknown_task.",
    do="Give the service a queue of its own: task_default_queue = …",
)
def default_queue(facts: Facts) -> Iterator[Found]:
    if "celery" in [queue.name for queue in facts.queues()]:
        yield "The workers consume the queue 'celery'."


def _big(queue: QueueFacts) -> str:
    return f"Q{str(queue)[1:]}"


def _dropping(queue: QueueFacts) -> list[str]:
    """The arguments by which a queue drops messages."""
    names = ["x-message-ttl", "x-expires"]
    if queue.arguments.get("x-overflow", "drop-head") != "reject-publish":
        names += ["x-max-length", "x-max-length-bytes"]
    return [f"{name} = {queue.arguments[name]}" for name in names if queue.arguments.get(name) is not None]


def _delivery_limit(facts: Facts, queue: QueueFacts) -> int | None:
    """How often a queue delivers a message; None for without end."""
    if queue.type != "quorum":
        return None
    default = 20 if facts.rabbitmq and facts.rabbitmq.version >= (4,) else -1
    limit = int(queue.arguments.get("x-delivery-limit", default))
    return None if limit < 0 else limit
