"""Checks of the broker: can it be reached, and does it keep what it was given?"""

from collections.abc import Iterator

from harness.worker.check.facts import Facts
from harness.worker.check.finding import Found, Start, Verdict, check
from harness.worker.check.queues import is_transient


@check(
    "broker",
    Verdict.broken,
    Start.no,
    about="`broker_url`, `CELERY_BROKER_URL`",
    means="No job comes or goes.",
    do="Check that the server runs and what the URL says: host, port, user, virtual host.",
)
def broker(facts: Facts) -> Iterator[Found]:
    if facts.broker_problem:
        yield f"The broker cannot be reached: {facts.broker_problem}"


@check(
    "broker-transport",
    Verdict.warning,
    Start.says,
    about="`broker_url`",
    means="Whether it delivers again what was not acknowledged was not proven.",
    do="Use RabbitMQ, or a Redis-protocol broker (Redis, Valkey).",
)
def broker_transport(facts: Facts) -> Iterator[Found]:
    if facts.transport not in ("amqp", "redis"):
        yield f"The broker is of the kind {facts.transport!r}."


@check(
    "ack-emulation",
    Verdict.broken,
    Start.refuses,
    about="`broker_transport_options['ack_emulation']` (Redis)",
    means="A message is gone when a worker fetches it: what a killed worker held is lost without a trace.",
    do="Take the option out.",
)
def ack_emulation(facts: Facts) -> Iterator[Found]:
    if facts.transport == "redis" and not facts.transport_options.get("ack_emulation", True):
        yield "ack_emulation is off."


@check(
    "publisher-confirms",
    Verdict.warning,
    Start.says,
    about="`broker_transport_options['confirm_publish']` (RabbitMQ)",
    means="delay() returns before the broker has the job: what it does not take is lost, and nobody is told. The relay "
    "always waits for the confirm.",
    do='Set broker_transport_options = {"confirm_publish": True} where jobs are sent.',
)
def publisher_confirms(facts: Facts) -> Iterator[Found]:
    if facts.transport == "amqp" and not facts.transport_options.get("confirm_publish"):
        yield "confirm_publish is off."


@check(
    "delivery-mode",
    Verdict.broken,
    Start.refuses,
    about="`task_default_delivery_mode`, `delivery_mode` of a queue's exchange (RabbitMQ)",
    means="Jobs are kept in the broker's memory only: its restart loses them without a trace.",
    do='Leave it at "persistent".',
)
def delivery_mode(facts: Facts) -> Iterator[Found]:
    if facts.transport != "amqp":
        return
    if is_transient(facts.conf.task_default_delivery_mode):
        yield f"task_default_delivery_mode is {facts.conf.task_default_delivery_mode!r}."
        return
    for queue in facts.queues():
        if queue.transient:
            yield f"The exchange of {queue} has delivery_mode = transient."
