"""Waits for the hint that something may be due: a NOTIFY, heard on a connection of its own.

Polling is the guarantee, so whatever goes wrong here costs only time: a server that is away, or a pooler in transaction
mode, which gives the connection that listens to somebody else.
"""

import contextlib
import logging
import select
import time
from typing import Any

import psycopg2

from harness.store.database import Database
from harness.store.wake import channel

log = logging.getLogger("harness")
#: Seconds until a connection that could not be had is tried again.
AGAIN = 30.0


class WakeUp:
    """One listener for one service. Not to be taken through a fork."""

    def __init__(self, database: Database, schema: str, service: str) -> None:
        self.database, self.channel, self.service = database, channel(schema), service
        self._raw: Any = None
        self._not_before = 0.0

    def listen(self) -> bool:
        """Open the connection, if there is none; False where it can't be had now."""
        if self._raw is not None:
            return True
        if time.monotonic() < self._not_before:
            return False
        self._not_before = time.monotonic() + AGAIN
        raw: Any = None
        try:
            raw = self._connect()
            with raw.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                if cursor.fetchone()[0] != raw.info.backend_pid:
                    raise psycopg2.OperationalError("a pooler stands in front of PostgreSQL")
                cursor.execute(f'LISTEN "{self.channel}"')
        except Exception as error:
            log.debug("relay: polls only, nobody can be listened to now: %s", error)
            if raw is not None:
                with contextlib.suppress(Exception):
                    raw.close()
            return False
        self._raw = raw
        return True

    def wait(self, timeout: float) -> bool:
        """Wait until somebody wakes this service, at most `timeout` seconds. True: there may be something to do."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if not self.listen():
                time.sleep(left)
                return False
            try:
                if self._heard():
                    return True
                select.select([self._raw], [], [], left)
                if self._heard():
                    return True
            except (psycopg2.Error, OSError, ValueError) as error:
                log.debug("relay: the connection that listens is gone: %s", error)
                self.close()
        return False

    def close(self) -> None:
        """Close the connection; the next `wait` opens another one."""
        raw, self._raw = self._raw, None
        if raw is not None:
            with contextlib.suppress(Exception):
                raw.close()

    def _heard(self) -> bool:
        """Take all that has arrived; many hints are as good as one."""
        self._raw.poll()
        heard = [note for note in self._raw.notifies if note.payload in ("", self.service)]
        self._raw.notifies.clear()
        return bool(heard)

    def _connect(self) -> Any:
        arguments, options = self.database.engine.dialect.create_connect_args(self.database.url)
        raw = psycopg2.connect(*arguments, **options, connect_timeout=5, keepalives_idle=10)
        raw.autocommit = True
        return raw
