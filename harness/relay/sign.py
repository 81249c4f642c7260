"""The sign of life that `harness check` looks for: bounded in number, and never in the way of the work."""

import logging
import time

from harness.store.database import Database
from harness.store.presence import EVERY
from harness.store.store import Store

log = logging.getLogger("harness")


class SignOfLife:
    """Says that `name` of `role` (`harness.store.presence`) is at work, in a transaction of its own."""

    def __init__(self, database: Database, store: Store, service: str, role: str, name: str) -> None:
        self.database, self.store, self.service, self.role, self.name = database, store, service, role, name
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
                self.store.presence.touch(session, self.service, self.role, self.name)
        except Exception as error:
            log.debug("no sign of life of %s %s: %s", self.role, self.name, error)
