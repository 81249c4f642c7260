"""Sending rows to a broker of the Redis protocol: many in one round trip, through kombu's batches."""

from collections.abc import Sequence
from typing import Any

from kombu import Producer
from kombu.exceptions import BatchPublishError

from harness.relay import Sent
from harness.store.inbox import InboxRow
from harness.worker import outgoing

#: Bytes of bodies, and messages, that are gathered for one round trip. What waits is in memory several times over.
MOST_BYTES, MOST = 4 << 20, 1000


class Pipelined:
    """Rows count as confirmed when the server has answered the round trip that they went with, each without an error.

    Where it fails, the server may have taken some of them: nobody knows which, and all are sent again.
    """

    spoilt = False

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def send(self, rows: Sequence[InboxRow], sent: Sent) -> Sequence[InboxRow]:
        """Send rows in their order; see `Line`."""
        gathered: set[int] = set()
        size = 0
        # One command for a message, and one for each priority where the queue expires: the count is kept here.
        with self.producer.batch(max_size=MOST * 16) as batch:
            for row in rows:
                try:
                    outgoing.publish(self.producer, row)
                except outgoing.CANNOT_TRAVEL as error:
                    sent.refused[row.id] = outgoing.no_form(row, error)
                    continue
                gathered.add(row.id)
                size += len(row.message.body)
                if size >= MOST_BYTES or len(gathered) >= MOST:
                    _flush(batch, gathered, sent)
                    size = 0
            _flush(batch, gathered, sent)
        return ()


def _flush(batch: Any, gathered: set[int], sent: Sent) -> None:
    try:
        batch.flush()
    except BatchPublishError as error:
        # It says only that something failed: what an operator needs to read is the server's own word.
        raise error.__cause__ or error from None
    sent.confirmed |= gathered
    gathered.clear()
