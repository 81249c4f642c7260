"""The sign of life that `harness check` looks for: bounded in number, and never in the way of the work."""

import logging
import time

from harness.store.database import Database
from harness.store.presence import EVERY
from harness.store.store import Store

log = logging.getLogger("harness")


class SignOfLife:
    """Says that `names` of `role` (`harness.store.presence`) are at work, in a transaction of its own."""

    def __init__(self, database: Database, store: Store, service: str, role: str, *names: str) -> None:
        self.database, self.store, self.service, self.role, self.names = database, store, service, role, names
        self._next = 0.0

    def give(self) -> None:
        """Leave a sign unless there is a fresh one. Whatever goes wrong: it is tried again when the next one is due."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY
        try:
            with self.database.begin() as session:
                self.store.fence.bound_waits(session, 1000)
                for name in sorted(self.names):  # two of them at once would be a deadlock in another order
                    self.store.presence.touch(session, self.service, self.role, name)
        except Exception as error:
            log.debug("no sign of life of %s %s: %s", self.role, self.names, error)
