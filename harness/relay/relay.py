"""Lease, commit, publish, and take the lease back where publishing failed."""

import logging
import platform
import threading
from collections.abc import Callable

import tenacity

from harness.core.errors import HarnessError
from harness.core.events import Events, Relayed
from harness.relay.sign import SignOfLife
from harness.store.database import Database, DatabaseAway
from harness.store.inbox import InboxRow
from harness.store.presence import RELAY
from harness.store.store import Store

log = logging.getLogger("harness")

#: Sends one row's message and returns when the broker has confirmed it; raises otherwise.
Publish = Callable[[InboxRow], None]
#: Seconds until a row whose queue does not exist is tried again.
UNROUTABLE_DELAY = 15.0
#: Seconds until the row at which publishing failed is tried again; the others go on at once.
REFUSED_DELAY = 2.0


class Unroutable(HarnessError):
    """The broker has no queue of that name: the row stays in the inbox and says so."""


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
    ) -> None:
        self.database, self.store, self.service, self.publish, self.events = (
            database,
            store,
            service,
            publish,
            events,
        )
        self.batch, self.lease, self.longest_lease, self.poll = batch, lease, longest_lease, poll
        self.highest_first = highest_first

    def step(self) -> int:
        """Send what is due, one batch; returns how many rows were leased. Raises DatabaseAway or the broker's error."""
        with self.database.begin() as session:
            rows = self.store.inbox.lease_due(
                session,
                self.service,
                limit=self.batch,
                lease=self.lease,
                longest=self.longest_lease,
                highest_first=self.highest_first,
            )
        sent = 0
        for index, row in enumerate(rows):
            try:
                self.publish(row)
                sent += 1
            except Unroutable as error:
                log.warning("relay: %s", error)
                self._release([row], delay=UNROUTABLE_DELAY, error=str(error))
            except Exception as error:
                # This row stands back, in case that the fault is its own: else it would be the first again, for ever.
                self._release([row], delay=REFUSED_DELAY, error=f"{type(error).__name__}: {error}"[:1000])
                self._release(rows[index + 1 :], error=None)
                raise
        if sent:
            self.events.emit(Relayed(sent, self.service))
        return len(rows)

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set; backs off while PostgreSQL or the broker is away, and goes on by itself."""
        wait = tenacity.wait_random_exponential(multiplier=0.2, max=10)
        failures = 0
        alive = SignOfLife(self.database, self.store, self.service, RELAY, platform.node() or "?")
        while not stop.is_set():
            alive.give()
            try:
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
                stop.wait(self.poll)

    def _release(self, rows: list[InboxRow], *, delay: float = 0.0, error: str | None) -> None:
        try:
            with self.database.begin() as session:
                self.store.inbox.release(session, rows, delay=delay, error=error)
        except DatabaseAway as away:
            log.warning("relay: could not take back %d leases (%s); they expire by themselves", len(rows), away)
