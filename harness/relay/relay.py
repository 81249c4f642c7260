"""Lease, commit, publish, and take the lease back where publishing failed."""

import logging
import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tenacity

from harness.core.errors import HarnessError
from harness.core.events import Events, Relayed
from harness.relay.sign import SignOfLife
from harness.relay.wake import WakeUp
from harness.store.database import Database, DatabaseAway
from harness.store.dispatch import Caps, Cursor
from harness.store.inbox import InboxRow
from harness.store.outside import is_outside, let_go
from harness.store.presence import RELAY
from harness.store.store import Store

log = logging.getLogger("harness")

#: Seconds until a row whose queue does not exist is tried again.
UNROUTABLE_DELAY = 15.0
#: Seconds until the row at which publishing failed is tried again; the others go on at once.
REFUSED_DELAY = 2.0
#: How often, in seconds, it looks for keys whose turn was not passed on, and in how many of them.
MEND_EVERY, MEND_KEYS = 1.0, 500


class Unroutable(HarnessError):
    """The broker has no queue of that name: the row stays in the inbox and says so."""


@dataclass
class Sent:
    """What became of rows that were published, by their ids; of those in neither nobody knows.

    `error`: the broker, or the connection to it, has failed meanwhile.
    """

    confirmed: set[int] = field(default_factory=set)
    refused: dict[int, Unroutable] = field(default_factory=dict)
    error: Exception | None = None


#: Sends the messages of rows and returns when the broker has confirmed them.
Publish = Callable[[Sequence[InboxRow]], Sent]


class Relay:
    """One relay of one service; any number may run at once, for a leased row is passed over by the others.

    A crash between the lease and the publish costs one lease, never the job: an expired lease is sent again.
    """

    def __init__(
        self,
        database: Database,
        store: Store,
        service: str,
        publish: Publish,
        events: Events,
        *,
        batch: int = 100,
        lease: float = 300.0,
        longest_lease: float = 6 * 3600.0,
        poll: float = 0.5,
        highest_first: bool = True,
        caps: Callable[[], Caps] = Caps,
        wake: WakeUp | None = None,
        outside: Callable[[InboxRow], bool] = is_outside,
    ) -> None:
        self.database, self.store, self.service, self.publish, self.events = (
            database,
            store,
            service,
            publish,
            events,
        )
        self.batch, self.lease, self.longest_lease, self.poll = batch, lease, longest_lease, poll
        self.highest_first, self.caps, self.wake = highest_first, caps, wake
        #: Is the row's task no job, so that it is sent once?
        self.outside = outside
        self.cursor = Cursor()
        self._mended, self._mend_next = "", 0.0
        #: A batch has failed: the next one goes row by row.
        self._careful = False

    def step(self) -> int:
        """Send what is due, one batch; returns how many rows it looked at, also of those whose turn it is not.

        Raises DatabaseAway or the broker's error.
        """
        with self.database.begin() as session:
            rows = self.store.inbox.lease_due(
                session,
                self.service,
                limit=self.batch,
                lease=self.lease,
                longest=self.longest_lease,
                highest_first=self.highest_first,
                caps=self.caps(),
                cursor=self.cursor,
            )
        self._publish(rows)
        return max(len(rows), self.cursor.looked)

    def _publish(self, rows: list[InboxRow]) -> None:
        """Publish what is leased. Raises the broker's error, when the rest is released."""
        width = 1 if self._careful else max(len(rows), 1)
        count, sent = 0, Sent()
        for start in range(0, len(rows), width):
            chunk = rows[start : start + width]
            sent = self.publish(chunk)
            count += len(sent.confirmed)
            self._let_go([row for row in chunk if row.id in sent.confirmed and self.outside(row)])
            for row in chunk:
                if (refusal := sent.refused.get(row.id)) is not None:
                    log.warning("relay: %s", refusal)
                    self._release([row], delay=UNROUTABLE_DELAY, error=str(refusal))
            if sent.error is not None:
                unknown = [row for row in chunk if row.id not in sent.confirmed and row.id not in sent.refused]
                self._stand_back(unknown, sent.error)
                self._release(rows[start + width :], error=None)
                break
        self._careful = sent.error is not None
        if count:
            self.events.emit(Relayed(count, self.service))
        if sent.error is not None:
            raise sent.error

    def _let_go(self, rows: list[InboxRow]) -> None:
        """Of tasks that are no jobs of the service: they are sent once, for they would never remove their rows."""
        if rows:
            with self.database.begin() as session:
                let_go(session, self.store, rows)

    def _stand_back(self, rows: list[InboxRow], error: Exception) -> None:
        """The fault may be a row's own. Which one's shows when the next ones go one at a time: that one waits."""
        if self._careful:
            self._release(rows, delay=REFUSED_DELAY, error=f"{type(error).__name__}: {error}"[:1000])
        else:
            self._release(rows, error=None)

    def mend(self) -> int:
        """Find rows to which nobody has passed the turn, in the next part of the keys; returns how many."""
        now = time.monotonic()
        if now < self._mend_next:
            return 0
        self._mend_next = now + MEND_EVERY
        with self.database.begin() as session:
            self._mended, found = self.store.wake.mend(session, self.service, self._mended, MEND_KEYS)
        return found

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set; backs off while PostgreSQL or the broker is away, and goes on by itself."""
        wait = tenacity.wait_random_exponential(multiplier=0.2, max=10)
        failures = 0
        alive = SignOfLife(self.database, self.store, self.service, RELAY, platform.node() or "?")
        while not stop.is_set():
            alive.give()
            try:
                self.mend()
                found = self.step()
                failures = 0
            except Exception as error:
                failures += 1
                if failures in (1, 10) or failures % 100 == 0:
                    log.warning("relay: not possible now, trying again: %s", f"{type(error).__name__}: {error}"[:300])
                state = tenacity.RetryCallState(None, None, (), {})  # type: ignore[arg-type]
                state.attempt_number = min(failures, 20)
                stop.wait(wait(state))
                continue
            if found < self.batch:
                self._pause(stop)
        if self.wake is not None:
            self.wake.close()

    def _pause(self, stop: threading.Event) -> None:
        if self.wake is None:
            stop.wait(self.poll)
        elif not stop.is_set():
            self.wake.wait(self.poll)

    def _release(self, rows: list[InboxRow], *, delay: float = 0.0, error: str | None) -> None:
        if not rows:
            return
        try:
            with self.database.begin() as session:
                self.store.inbox.release(session, rows, delay=delay, error=error)
        except DatabaseAway as away:
            log.warning("relay: could not take back %d leases (%s); they expire by themselves", len(rows), away)
