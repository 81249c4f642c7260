"""In the parent: what a channel that consumes is made to do otherwise than kombu's own."""

from typing import Any

from harness.worker.acked import keep_acked
from harness.worker.clients import keep_client
from harness.worker.envelope import take_anything
from harness.worker.exact import keep_bytes
from harness.worker.fetch import keep_fetched
from harness.worker.popped import keep_popped
from harness.worker.returned import keep_returned


def lose_nothing(channel: Any) -> None:
    """Before anything is consumed on `channel`."""
    for keep in (keep_bytes, take_anything, keep_client, keep_popped, keep_acked, keep_returned, keep_fetched):
        keep(channel)
