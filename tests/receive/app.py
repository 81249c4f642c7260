"""An app with sources, for the receivers and workers of these tests. Its environment is that of `tests.worker.app`."""

import json
import os
from typing import Any

from sqlalchemy.orm import Session

from harness import CloudEvents, Delivered, Fields, Incoming, Job
from tests.worker.app import app, effect, harness, quick

app.conf.update(harness_receive="off", harness_receive_batch=20)
app.conf.update(json.loads(os.environ.get("TEST_SETTINGS", "{}")))


@harness.job(name="order", policy=quick)
def order(session: Session, job: Job, item: str, count: int = 1) -> None:
    effect(session, job, f"{item} {count}")


@harness.job(name="webhook", policy=quick)
def webhook(session: Session, job: Job, event: str, payload: dict[str, Any]) -> None:
    effect(session, job, event)


@harness.job(name="fact", policy=quick)
def fact(session: Session, job: Job, kind: str, data: Any = None) -> None:
    effect(session, job, kind)


def plain(message: Delivered) -> Incoming:
    """A format of one's own: `id item count`."""
    name, item, count = message.text().split()
    return Incoming(id=name, arguments={"item": item, "count": int(count)})


ROUTED = {"exchange": "shop", "routing_keys": ["order.eu.#", "order.us.new"]}
orders = harness.source("orders", job=order, queue="orders", read=Fields(tenant="headers.x-tenant"))
strict = harness.source(
    "strict",
    job=order,
    queue="strict",
    read=Fields(
        id="body.id",
        without_id="refuse",
        arguments={"item": "body.order.lines.0.item", "count": "body.order.lines.0.count"},
        ordering_key="body.order.account",
    ),
)
github = harness.source(
    "github",
    job=webhook,
    queue="github",
    read=Fields(
        id="headers.X-GitHub-Delivery",
        arguments={"event": "headers.X-GitHub-Event", "payload": "body"},
        ordering_key="body.repository.full_name",
    ),
)
events = harness.source(
    "events", job=fact, queue="events", read=CloudEvents(arguments={"kind": "attributes.type", "data": "data"})
)
own = harness.source("own", job=order, queue="own", read=plain)
routed = harness.source("routed", job=order, queue="routed", **ROUTED)

if os.environ.get("TEST_ODD_QUEUES"):
    harness.source("quorum", job=order, queue="quorum", queue_arguments={"x-queue-type": "quorum"})
    harness.source("stream", job=order, queue="stream")
    harness.source("given_stream", job=order, queue="given_stream", declare=False)

if os.environ.get("TEST_SMALL_LIMITS"):  # a message of some hundred megabytes takes its time
    from harness.worker import burial, taken

    vars(taken)["LARGEST"], vars(burial)["WHOLE"] = 1_500_000, 2_000_000
