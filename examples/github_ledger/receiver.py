"""The ledger where deliveries come by way of a queue: a gateway takes GitHub's requests and publishes them as they are.

    celery -A examples.github_ledger.receiver worker

The receiver beside the worker takes each of them in once, by GitHub's own id of the delivery.
"""

from examples.github_ledger.app import app, book_activity, harness
from harness import Fields

__all__ = ["app", "deliveries", "harness"]

#: What GitHub says in the headers of its request, the gateway says in those of the message.
deliveries = harness.source(
    "github",
    job=book_activity,
    queue="github_deliveries",
    read=Fields(
        id="headers.X-GitHub-Delivery",
        arguments={"event": "headers.X-GitHub-Event", "payload": "body"},
        ordering_key="body.repository.full_name",
        without_id="refuse",
    ),
)
