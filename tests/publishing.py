"""For a relay without a broker: a publisher that sends row by row."""

from collections.abc import Callable, Sequence

from harness.relay import Publish, Sent, Unroutable
from harness.store.inbox import InboxRow


def in_turn(send: Callable[[InboxRow], object]) -> Publish:
    """A `Publish` out of a function for one row, which raises Unroutable or whatever a broker would."""

    def publish(rows: Sequence[InboxRow]) -> Sent:
        sent = Sent()
        for row in rows:
            try:
                send(row)
            except Unroutable as error:
                sent.refused[row.id] = error
            except Exception as error:
                sent.error = error
                break
            else:
                sent.confirmed.add(row.id)
        return sent

    return publish
