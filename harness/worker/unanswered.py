"""In the parent, on Redis-protocol brokers: fetches whose answer never came. Each may have taken a message.

Its connection broke, or was given up. The server may do it after that: what was sent lies with a server that stands
still, or is sent once more by the network that was cut. So it is asked several times, whatever channel is there then.
"""

from contextlib import suppress
from time import monotonic
from typing import Any

#: Seconds between two questions, and from the first to the last; how many fetches.
AGAIN, LATE, MOST = 10.0, 300.0, 1000
#: For each broker, database and name of kombu's hash: tags, and until when to ask for them.
_places: dict[tuple[str, str, str], dict[str, float]] = {}


class Unanswered:
    """Those of this process at the broker of `channel`."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        where = channel.connection.client.as_uri(), channel.global_keyprefix, channel.unacked_key
        self._tags = _places.setdefault(where, {})
        self._again = 0.0

    def add(self, tag: str) -> None:
        """Bounded: the oldest is left to the visibility time-out."""
        while len(self._tags) >= MOST:
            self._tags.pop(next(iter(self._tags)), None)
        self._tags[tag] = monotonic() + LATE

    def ask_again(self) -> None:
        """From time to time."""
        if self._tags and monotonic() >= self._again:
            self.ask()

    def ask(self) -> None:
        """Put back what they have taken; a broker that can't be asked now is asked later."""
        self._again = monotonic() + AGAIN
        for _ in range(2):  # the pool's connection may be the one that broke
            with suppress(*self.channel.connection_errors, self.channel.ResponseError):
                self._ask()
                return

    def _ask(self) -> None:
        channel, now, tags = self.channel, monotonic(), list(self._tags)
        if not tags:
            return
        with channel.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
            for tag in tags:
                pipe.hexists(f"{channel.global_keyprefix}{channel.unacked_key}", tag)
            noted = pipe.execute()
        for tag, is_noted in zip(tags, noted, strict=True):
            if is_noted:
                channel.qos.restore_by_tag(tag)
            if is_noted or now >= self._tags.get(tag, now):
                self._tags.pop(tag, None)
