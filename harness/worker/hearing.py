"""A Redis-protocol server that says when there may be something to fetch.

No command waits for several lists and leaves them as they are. The server is asked to tell when a list changes that was
found empty (client tracking, which takes RESP3); where it can't, it is made to answer later.
"""

import logging
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

log = logging.getLogger("harness")

#: Seconds: until all lists are looked at again unasked, and how late the server answers where it can't tell.
LOOK, NAP = 1.0, 0.1
#: With so many lists each of the two is doubled, for a look takes longer: a good tenth of a second.
MANY = 10_000


class Hearing:
    """Of one connection after the other. `nothing`: the key of a list that nobody fills."""

    def __init__(self, nothing: str) -> None:
        self.nothing = nothing
        self._socket: Any = None
        self._tells, self._naps, self._empty, self._look_at = False, True, False, 0.0
        self._paused_until = 0.0
        self._queues: list[str] = []
        #: The keys of which it has told since they were found empty; None while not all were found empty once.
        self._changed: set[str] | None = None
        self._looking: tuple[set[str], bool] = set(), True

    def begin(self, connection: Any, queues: list[str]) -> None:
        """Before a fetch from `queues`: nothing is known yet of another connection, or of other queues."""
        if self._queues != queues:
            self._queues, self._changed, self._look_at = queues, None, 0.0
        if self._socket is connection._sock:
            return
        self._empty, self._tells, self._changed = False, False, None
        if str(getattr(connection, "protocol", 2)) == "3":
            connection._parser.set_invalidation_push_handler(self._told)
            try:
                connection.send_command("CLIENT", "TRACKING", "ON", "NOLOOP", check_health=False)
                connection.read_response()
                self._tells = True
            except ResponseError as error:
                log.info("the broker does not tell of new messages (%s): it is asked every %g s", error, NAP)
        self._socket = connection._sock

    def may_be_something(self) -> bool:
        """Is it time for a fetch?"""
        now = monotonic()
        if now < self._paused_until:
            return False
        if now >= self._look_at:
            return True
        return self._changed != set() if self._tells else self._naps or not self._empty

    def pause(self) -> None:
        """Send no fetch for a while."""
        self._paused_until = monotonic() + LOOK

    def worth_a_look(self, lists: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of `lists` (their keys first) that the fetch which is sent now looks at: not what is known as empty."""
        changed = self._changed
        if changed is None or monotonic() >= self._look_at:
            self._looking = {key for key, _ in lists}, True
            return lists
        self._looking = {key for key, _ in lists if key in changed}, False
        changed &= self._looking[0]
        return [one for one in lists if one[0] in changed]

    def first(self) -> tuple[Any, ...]:
        """The command to send before a fetch so that its answer comes later; empty for none."""
        return ("BRPOP", self.nothing, self._stretched(NAP)) if self._empty and self._naps and not self._tells else ()

    def read_first(self, connection: Any) -> None:
        """Its answer."""
        try:
            connection.read_response()
        except ResponseError as error:
            self._naps = False
            log.warning("the broker can't be made to wait (%s): it is asked every %g s", error, LOOK)

    def answered(self, connection: Any, found: str | None) -> None:
        """A fetch has taken something from list `found`, or nothing: what was said until then is old."""
        keys, are_all = self._looking
        self._empty = found is None
        if are_all:
            self._look_at = monotonic() + self._stretched(LOOK)
        if found is not None:
            if self._changed is not None:
                self._changed.add(found)  # there may be more
        elif self._tells:
            self._changed = set() if are_all else (self._changed or set()) - keys
            if connection.can_read(timeout=0):
                self.hear(connection)

    def _stretched(self, seconds: float) -> float:
        return seconds * (1 + len(self._looking[0]) / MANY)

    def hear(self, connection: Any) -> None:
        """Read what it says unasked: all of it, for what is left in a buffer wakes nobody."""
        while True:
            connection.read_response(push_request=True)
            if not connection.can_read(timeout=0):
                return

    def _told(self, said: Any) -> None:
        keys = said[1]
        if keys is None:  # of all, as after FLUSHALL
            self._changed = None
        elif self._changed is not None:
            self._changed.update(key.decode("utf-8", "replace") if isinstance(key, bytes) else key for key in keys)
