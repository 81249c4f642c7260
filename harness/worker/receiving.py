"""The receiver as a process: alone (`celery -A app harness receive`) or as a child of a worker.

It takes messages from the sources' queues into its hand, has them stored, and only then acknowledges them. One loop
does it all, so that the connection to the broker is served while the database is away.
"""

import contextlib
import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tenacity
from sqlalchemy.exc import DBAPIError

from harness.store.database import DatabaseAway
from harness.worker.burial import refusal
from harness.worker.chosen import chosen
from harness.worker.intake import Intake
from harness.worker.line import MISSING, Line
from harness.worker.properties import take_any_properties
from harness.worker.receiver_sign import ReceivesFrom
from harness.worker.source import Source
from harness.worker.taken import Away, Taken, look

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")

#: Seconds: how long the loop waits for a message; for one more, when it has one.
IDLE, MORE = 0.5, 0.005
#: Bytes of bodies in hand at which no more is taken.
HEAVY = 16 * 1024 * 1024
#: Seconds that a receiver which is told to end goes on trying to store what it has in hand.
GRACE = 5.0
_WAIT = tenacity.wait_random_exponential(multiplier=0.2, max=5)


def run(harness: "Harness", names: Sequence[str] = ()) -> None:
    """Receive in the foreground until SIGTERM or SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    Receiver(harness, chosen(harness, names)).run(stop)


class Receiver:
    """One receiver of some sources; any number may run at once."""

    def __init__(self, harness: "Harness", sources: Sequence[Source]) -> None:
        self.harness, self.sources = harness, sources
        self.intake = Intake(harness, f"receive-{os.getpid()}@{platform.node()}")
        self.batch = harness.settings.receive_batch
        self.hand: list[Taken] = []
        self.sign = ReceivesFrom(harness)
        self._failures = 0
        self._next_try = 0.0
        self._served = False

    def run(self, stop: threading.Event) -> None:
        """Receive until `stop` is set; waits for a database and a broker that are away, and goes on by itself."""
        broken = 0
        while not stop.is_set():
            self._served = False
            try:
                if not self._database_is_there(stop):
                    return
                with self._connected() as connection:
                    lines = [Line(source, self.batch, self._take) for source in self.sources]
                    self._serve(connection, lines, stop)
                    broken = 0
            except Exception as error:
                broken = 0 if self._served else broken + 1
                if broken in (0, 1, 10) or broken % 100 == 0:
                    text = f"{type(error).__name__}: {error}"[:300]
                    log.warning("receive: the broker can't be used now, trying again: %s", text)
                stop.wait(_after(broken))
            finally:
                # The broker has them still, and gives them to the next one who asks.
                self.hand.clear()

    def _database_is_there(self, stop: threading.Event) -> bool:
        """Wait until it is: a message that is taken and given back counts as a delivery, and queues bound those."""
        failures = 0
        while not stop.is_set():
            try:
                with self.harness.database.begin() as session:
                    self.harness.store.inbox.seconds_until_due(session, self.harness.settings.service)
                return True
            except Exception as error:
                failures += 1
                if failures in (1, 10) or failures % 100 == 0:
                    kind = "away" if isinstance(error, DatabaseAway) else "not ready"
                    why = refusal(error) if isinstance(error, DBAPIError) else str(error).splitlines()[0][:300]
                    log.warning("receive: the database is %s, nothing is taken: %s", kind, why)
                stop.wait(_after(failures))
        return False

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        app = self.harness.app
        take_any_properties()
        connection = app.connection_for_read(heartbeat=app.conf.broker_heartbeat or 0)
        try:
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
            yield connection
        finally:
            with contextlib.suppress(Exception):
                connection.release()

    def _serve(self, connection: Any, lines: Sequence[Line], stop: threading.Event) -> None:
        began = 0.0
        beats = bool(connection.heartbeat) and connection.supports_heartbeats
        while not stop.is_set():
            if time.monotonic() >= began:
                began = time.monotonic() + MISSING
                if [line for line in lines if line.begin(connection)]:
                    self._say_ready(lines)
            self.sign.give(line.source.name for line in lines if line.is_open)
            self._fill(connection)
            for line in lines:
                line.resolve()
            if beats:
                connection.heartbeat_check()
            self._settle()
        end = time.monotonic() + GRACE
        for line in lines:
            line.end()
        while self.hand and time.monotonic() < end:
            self._next_try = 0.0
            if not self._settle():
                time.sleep(0.2)

    def _say_ready(self, lines: Sequence[Line]) -> None:
        self._served = True
        open_ = [f"{line.source.name} (queue {line.source.queue.name})" for line in lines if line.is_open]
        log.info("receive: ready, receiver pid=%d takes in from %s", os.getpid(), ", ".join(open_))

    def _fill(self, connection: Any) -> None:
        """Take what is there, up to a batch; wait a little where there is nothing."""
        wait = MORE if self._due() else IDLE
        for _ in range(self.batch):
            if sum(len(one.wire.message.body) for one in self.hand) >= HEAVY:
                if not self._due():
                    time.sleep(IDLE)
                return  # the broker keeps the rest, and ends the connection where that lasts too long
            last = self.hand[-1:]
            try:
                connection.drain_events(timeout=wait)
            except TimeoutError:
                return
            wait = MORE if self.hand[-1:] != last else wait

    def _take(self, source: Source, message: Any) -> None:
        # A Redis-protocol broker gives a message again whose visibility time-out is over, to whoever asks: to us, too.
        one = look(source, message, self.intake.name)
        for known in self.hand:
            if known.source is source and _is_same(known.message, message):
                one.failures = known.failures
                self.hand.remove(known)
                self._acknowledge(known)
                break
        self.hand.append(one)

    def _due(self) -> list[Taken]:
        """What is in hand and may be tried now."""
        now = time.monotonic()
        return [one for one in self.hand if one.not_before <= now] if now >= self._next_try else []

    def _settle(self) -> bool:
        """Store what is in hand, then acknowledge; True when nothing went wrong."""
        due = self._due()
        if not due:
            return True
        try:
            self.intake.settle(due[: self.batch])
            self._failures = 0
        except Away as error:
            self._failures += 1
            if self._failures in (1, 10) or self._failures % 100 == 0:
                log.warning("receive: %s, holding %d messages: %s", error.what, len(self.hand), str(error)[:300])
            self._next_try = time.monotonic() + _after(self._failures)
        done = [one for one in self.hand if one.decided]
        self.hand = [one for one in self.hand if not one.decided]
        for one in done:
            for tell in one.tell:
                tell()
            self._acknowledge(one)
        return not self._failures

    def _acknowledge(self, one: Taken) -> None:
        one.message.ack()


def _is_same(message: Any, other: Any) -> bool:
    """Is it by its sender's tag, which only Redis-protocol brokers have, and by all that it says?

    A sender may write the same tag, or the same body, into every message.
    """
    return message.properties.get("delivery_tag") is not None and _said(message) == _said(other)


def _said(message: Any) -> tuple[Any, ...]:
    """Without the broker's own words."""
    headers = {key: value for key, value in (message.headers or {}).items() if key != "redelivered"}
    properties = {key: value for key, value in message.properties.items() if key != "delivery_info"}
    return message.raw_body, headers, properties


def _after(failures: int) -> float:
    state = tenacity.RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    state.attempt_number = max(1, min(failures, 20))
    return float(_WAIT(state))
