"""Sending rows one after another, over a transport that answers each by itself or not at all."""

from collections.abc import Sequence

from kombu import Producer

from harness.relay import Sent
from harness.store.inbox import InboxRow
from harness.worker import outgoing


class OneByOne:
    """A row counts as confirmed when the transport has taken it without an error."""

    spoilt = False

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def send(self, rows: Sequence[InboxRow], sent: Sent) -> Sequence[InboxRow]:
        """Send rows in their order; see `Line`."""
        for row in rows:
            try:
                outgoing.publish(self.producer, row)
            except outgoing.CANNOT_TRAVEL as error:
                sent.refused[row.id] = outgoing.no_form(row, error)
            else:
                sent.confirmed.add(row.id)
        return ()
