"""Sending rows to RabbitMQ: a batch is written, then the broker's confirms for it are waited for together."""

from collections.abc import Sequence
from typing import Any

import amqp
from kombu import Producer

from harness.relay import Sent, Unroutable
from harness.store.inbox import InboxRow
from harness.worker import outgoing
from harness.worker.wire import CONSUMER, GENERATION

#: Seconds in which the broker has to say something of what was published; a RabbitMQ without memory says nothing.
CONFIRMED_WITHIN = 30.0


class Confirmed:
    """Each row is confirmed, refused, or came back, for there is no such queue: `sent` has what the broker said."""

    def __init__(self, connection: Any, producer: Producer) -> None:
        self.connection, self.producer = connection, producer
        self.spoilt = False
        self._confirms = _Confirms(producer.channel)

    def send(self, rows: Sequence[InboxRow], sent: Sent) -> Sequence[InboxRow]:
        """Send rows in their order; see `Line`. Ends with one that has no form, for its channel is good no more."""
        rest: Sequence[InboxRow] = ()
        for number, row in enumerate(rows):
            self._confirms.expect(row)
            try:
                outgoing.publish(self.producer, row)
            except outgoing.CANNOT_TRAVEL as error:
                self._confirms.forget(row)
                sent.refused[row.id] = outgoing.no_form(row, error)
                self.spoilt, rest = True, rows[number + 1 :]
                break
        self._settle(sent)
        return rest

    def _settle(self, sent: Sent) -> None:
        """Wait until the broker has said what became of all that was sent."""
        try:
            while self._confirms.open:
                self.connection.drain_events(timeout=CONFIRMED_WITHIN)
        finally:
            self._confirms.tell(sent)


class _Confirms:
    """What a channel says of the messages that were published on it. `open`: those of which it has said nothing yet."""

    def __init__(self, channel: amqp.Channel) -> None:
        self.open: dict[int, InboxRow] = {}
        self._number = 0
        self._confirmed: list[InboxRow] = []
        self._refused: list[InboxRow] = []
        self._returned: set[tuple[Any, ...]] = set()
        channel.events["basic_ack"].add(self._on_ack)
        channel.events["basic_nack"].add(self._on_nack)
        channel.events["basic_return"].add(self._on_return)
        channel.confirm_select()

    def expect(self, row: InboxRow) -> None:
        """`row` is published next: the broker counts the messages of a channel from 1."""
        self._number += 1
        self.open[self._number] = row

    def forget(self, row: InboxRow) -> None:
        """It could not be published; nothing else is, on this channel."""
        self.open.pop(self._number)

    def tell(self, sent: Sent) -> None:
        """Move what is known into `sent`."""
        for row in self._confirmed:
            if self._returned and _mark(outgoing.headers_of(row), row.message.body) in self._returned:
                queue = row.message.queue
                text = (
                    f"the broker has no queue {queue!r}: job {row.job_id} waits in the inbox for one. Start a worker "
                    f"with -Q {queue}, or correct task_routes or queue= where the job is sent"
                )
                sent.refused[row.id] = Unroutable(text)
            else:
                sent.confirmed.add(row.id)
        for row in self._refused:
            text = f"the broker refuses more messages in queue {row.message.queue!r}: job {row.job_id} waits here"
            sent.refused[row.id] = Unroutable(text)
        self._confirmed, self._refused, self._returned = [], [], set()

    def _on_ack(self, tag: int, multiple: bool) -> None:
        self._confirmed += self._taken(tag, multiple)

    def _on_nack(self, tag: int, multiple: bool) -> None:
        self._refused += self._taken(tag, multiple)

    def _taken(self, tag: int, multiple: bool) -> list[InboxRow]:
        tags = [known for known in self.open if known <= tag] if multiple else [tag]
        return [self.open.pop(known) for known in tags if known in self.open]

    def _on_return(self, error: Any, exchange: Any, routing_key: Any, message: Any) -> None:
        """There is no queue of that name. The broker says so before it confirms the message."""
        body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
        self._returned.add(_mark(message.properties.get("application_headers", {}), body))


def _mark(headers: dict[str, Any], body: bytes) -> tuple[Any, ...]:
    """By what a message that came back is known again."""
    return (headers.get(CONSUMER), headers.get(GENERATION), headers.get("id"), body)
