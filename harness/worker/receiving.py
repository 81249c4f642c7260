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
from amqp.exceptions import AccessRefused, NotFound, PreconditionFailed
from kombu import Consumer

from harness.core.errors import ConfigError, UsageError
from harness.core.incoming import Incoming
from harness.store.database import DatabaseAway
from harness.worker.clients import keep_client
from harness.worker.envelope import take_anything
from harness.worker.exact import keep_bytes
from harness.worker.intake import Away, Intake, Taken
from harness.worker.popped import keep_popped
from harness.worker.properties import take_any_properties
from harness.worker.receive import entry_of
from harness.worker.receiver_sign import ReceivesFrom
from harness.worker.source import Source
from harness.worker.transport import is_redis

if TYPE_CHECKING:
    from harness.worker.harness import Harness

log = logging.getLogger("harness")

#: Seconds: how long the loop waits for a message; for one more, when it has one; until a queue is looked for again.
IDLE, MORE, MISSING = 0.5, 0.005, 15.0
#: Seconds that a receiver which is told to end goes on trying to store what it has in hand.
GRACE = 5.0
_WAIT = tenacity.wait_random_exponential(multiplier=0.2, max=5)


def chosen(harness: "Harness", names: Sequence[str] = ()) -> list[Source]:
    """The sources of these names, all without any. ConfigError for what can't be received."""
    harness.app.finalize()
    known = harness.sources
    unknown = [name for name in names if name not in known]
    if unknown:
        listed = ", ".join(known) or "none"
        raise ConfigError(f"The app has no source {unknown[0]!r}. Its sources: {listed}.")
    if not known:
        raise ConfigError('The app declares no source: harness.source("name", job=…, queue=…).')
    sources = [known[name] for name in names] or list(known.values())
    conf = harness.app.conf
    own = {conf.task_default_queue, *(queue.name for queue in conf.task_queues or ())}
    for source in sources:
        if source.queue.name in own:
            raise ConfigError(
                f"The source {source.name!r} reads the queue {source.queue.name!r}, which the workers read as well: "
                "each message would go to one of the two. Give the source a queue of its own."
            )
        bound = [source.queue.exchange, *(one.exchange for one in source.queue.bindings or ())]
        if is_redis(conf) and any(exchange is not None and exchange.type == "fanout" for exchange in bound):
            raise ConfigError(
                f"The source {source.name!r}: a fanout exchange on a Redis-protocol broker keeps nothing for a "
                "receiver that is away. Use a topic exchange, or a plain queue."
            )
        # Whatever is wrong with the job's route is wrong for each message: it must not make letters of all of them.
        try:
            entry_of(source.job, Incoming(id="route"), source.name)
        except UsageError as error:
            raise ConfigError(f"The source {source.name!r}: {error}") from error
    return sources


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
                    lines = [_Line(self, source) for source in self.sources]
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
                    log.warning(
                        "receive: the database is %s, nothing is taken: %s", kind, str(error).splitlines()[0][:300]
                    )
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

    def _serve(self, connection: Any, lines: "Sequence[_Line]", stop: threading.Event) -> None:
        began = 0.0
        beats = bool(connection.heartbeat) and connection.supports_heartbeats
        while not stop.is_set():
            if time.monotonic() >= began:
                began = time.monotonic() + MISSING
                if [line for line in lines if line.begin(connection)]:
                    self._say_ready(lines)
            self.sign.give(line.source.name for line in lines if line.is_open)
            self._fill(connection)
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

    def _say_ready(self, lines: "Sequence[_Line]") -> None:
        self._served = True
        open_ = [f"{line.source.name} (queue {line.source.queue.name})" for line in lines if line.is_open]
        log.info("receive: ready, receiver pid=%d takes in from %s", os.getpid(), ", ".join(open_))

    def _fill(self, connection: Any) -> None:
        """Take what is there, up to a batch; wait a little where there is nothing."""
        wait = MORE if self._due() else IDLE
        for _ in range(self.batch):
            before = len(self.hand)
            try:
                connection.drain_events(timeout=wait)
            except TimeoutError:
                return
            wait = MORE if len(self.hand) > before else wait

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
                log.warning("receive: the database is away, holding %d messages: %s", len(self.hand), str(error)[:300])
            self._next_try = time.monotonic() + _after(self._failures)
        done = [one for one in self.hand if one.decided]
        self.hand = [one for one in self.hand if not one.decided]
        for one in done:
            for tell in one.tell:
                tell()
            one.message.ack()
        return not self._failures


class _Line:
    """One source's channel."""

    def __init__(self, receiver: Receiver, source: Source) -> None:
        self.receiver, self.source = receiver, source
        self.consumer: Any = None
        self._said: str | None = None

    @property
    def is_open(self) -> bool:
        return self.consumer is not None

    def begin(self, connection: Any) -> bool:
        """Consume, unless it does already; True when it has begun. What is wrong with its queue alone is logged."""
        if self.is_open:
            return False
        try:
            queue = self._declared(connection)
        except (NotFound, AccessRefused, PreconditionFailed) as error:
            self._refused(str(error))
            return False
        channel = connection.channel()
        for keep in (keep_bytes, take_anything, keep_client, keep_popped):
            keep(channel)
        consumer = Consumer(channel, [queue(channel)], auto_declare=False, on_message=self._take, accept=None)
        consumer.on_decode_error = lambda message, error: self._take(message)
        consumer.qos(prefetch_count=self.receiver.batch)
        try:
            consumer.consume()
        except (NotFound, AccessRefused) as error:
            self._refused(str(error))
            return False
        self.consumer, self._said = consumer, None
        return True

    def _declared(self, connection: Any) -> Any:
        queue = self.source.queue
        if self.source.declare:
            try:
                with connection.channel() as channel:
                    queue(channel).declare()
                return queue
            except PreconditionFailed as error:
                log.warning(
                    "receive: queue %s is there with other properties, and is used as it is: %s", queue.name, error
                )
            except AccessRefused as error:
                log.warning("receive: queue %s may not be declared, and is used as it is: %s", queue.name, error)
        if connection.transport.driver_type == "amqp":
            with connection.channel() as channel:
                queue(channel).queue_declare(passive=True)
        return queue

    def _refused(self, why: str) -> None:
        if why != self._said:
            self._said = why
            log.error(
                "receive: source %s gets nothing from queue %s: %s. Make the queue, or give the user of the broker its "
                "rights; it is looked for every %g s",
                self.source.name,
                self.source.queue.name,
                why,
                MISSING,
            )

    def _take(self, message: Any) -> None:
        self.receiver.hand.append(self.receiver.intake.look(self.source, message))

    def end(self) -> None:
        """Take no more."""
        consumer, self.consumer = self.consumer, None
        if consumer is not None:
            consumer.cancel()


def _after(failures: int) -> float:
    state = tenacity.RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    state.attempt_number = max(1, min(failures, 20))
    return float(_WAIT(state))
