"""A Redis-protocol server that says when there may be something to fetch.

No command waits for several lists and leaves them as they are. The server is asked to tell when a list changes that was
found empty (client tracking, which takes RESP3); where it can't, it is made to answer later.
"""

import logging
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

log = logging.getLogger("harness")

#: Seconds: until a fetch is sent again unasked, and how late the server answers where it can't tell.
LOOK, NAP = 1.0, 0.1


class Hearing:
    """Of one connection after the other. `nothing`: the key of a list that nobody fills."""

    def __init__(self, nothing: str) -> None:
        self.nothing = nothing
        self._socket: Any = None
        self._tells, self._naps, self._empty, self._look_at = False, True, False, 0.0

    def begin(self, connection: Any) -> None:
        """Before the first fetch on it."""
        if self._socket is connection._sock:
            return
        self._socket, self._empty, self._tells = connection._sock, False, False
        if str(getattr(connection, "protocol", 2)) != "3":
            return
        connection._parser.set_invalidation_push_handler(self._told)
        try:
            connection.send_command("CLIENT", "TRACKING", "ON", "NOLOOP")
            connection.read_response()
            self._tells = True
        except ResponseError as error:
            log.info("the broker does not tell of new messages (%s): it is asked every %g s", error, NAP)

    def may_be_something(self) -> bool:
        """Is it time for a fetch?"""
        return not self._empty or monotonic() >= self._look_at or (self._naps and not self._tells)

    def first(self) -> tuple[Any, ...]:
        """The command to send before a fetch so that its answer comes later; empty for none."""
        return ("BRPOP", self.nothing, NAP) if self._empty and self._naps and not self._tells else ()

    def read_first(self, connection: Any) -> None:
        """Its answer."""
        try:
            connection.read_response()
        except ResponseError as error:
            self._naps = False
            log.warning("the broker can't be made to wait (%s): it is asked every %g s", error, LOOK)

    def answered(self, connection: Any, empty: bool) -> None:
        """What a fetch has found; what the server has said until then is old."""
        self._empty, self._look_at = empty, monotonic() + LOOK
        if empty and self._tells and connection.can_read(timeout=0):
            self.hear(connection)

    def hear(self, connection: Any) -> None:
        """Read what it says unasked: all of it, for what is left in a buffer wakes nobody."""
        while True:
            connection.read_response(push_request=True)
            if not connection.can_read(timeout=0):
                return

    def _told(self, *_: Any) -> None:
        self._empty = False
