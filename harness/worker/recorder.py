"""In the parent: has a healthy child record what became of a message, and waits for its proof."""

import logging
import time
from collections.abc import Callable
from typing import Any

from harness.core.failure import Failure
from harness.worker.trace import Reply, record_message
from harness.worker.wire import Wire

log = logging.getLogger("harness")

#: Seconds until a record that failed is tried again.
AGAIN = 2.0
#: After so many failures the headers are recorded as text, and nobody looks into the body any more.
PLAIN_AFTER = 3


class Recorder:
    """One message whose outcome is still to be recorded. `done` is called with the child's reply, in the event loop."""

    def __init__(
        self,
        consumer: Any,
        wire: Wire,
        failure: Failure,
        task: str | None,
        done: Callable[[Reply], None],
        id_: str,
    ) -> None:
        self.consumer, self.wire, self.failure = consumer, wire, failure
        self.task, self.done, self.id = task, done, id_
        self.deaths = 0
        self.since = time.monotonic()

    def submit(self) -> None:
        """Hand it to the pool from the event loop: here we may be inside a callback of the pool itself."""
        self._later(0.0)

    def _later(self, seconds: float) -> None:
        self.consumer.timer.call_after(seconds, self._acquire)

    def _acquire(self) -> None:
        # Celery bounds what the pool holds by a semaphore, where the pool has one (prefork); the pool gives it back.
        acquire = getattr(self.consumer.controller, "_quick_acquire", None)
        if acquire is None:
            self.execute_using_pool(self.consumer.pool)
        else:
            acquire(self.execute_using_pool, self.consumer.pool)

    def execute_using_pool(self, pool: Any) -> None:
        try:
            pool.apply_async(
                record_message,
                args=(self.wire, self.failure, self.task, self.deaths < PLAIN_AFTER),
                callback=self._on_reply,
                error_callback=self._on_death,
                correlation_id=self.id,
            )
        except Exception as error:
            release = getattr(self.consumer.controller, "_quick_release", None)
            if release is not None:
                release()
            self._on_death(error)

    def _on_reply(self, failed__retval__runtime: Any, **_: Any) -> None:
        reply = failed__retval__runtime[1]
        if isinstance(reply, Reply):
            from harness.worker.harness import Harness

            most = Harness.of(self.consumer.app).settings.outage_hold
            if reply.outcome == "unrecorded" and time.monotonic() - self.since + AGAIN < most:
                self._later(AGAIN)
                return
            self.done(reply)
        else:
            self._on_death(reply)

    def _on_death(self, exc_info: Any, **_: Any) -> None:
        log.error(
            "recording the outcome of %s failed (%s); the message is held and it is tried again",
            self.id,
            _named(exc_info),
        )
        self.deaths += 1
        if self.deaths == PLAIN_AFTER:
            # What can't be written is in the envelope, most likely: as text it can, and the body is whole all the same.
            self.wire = self.wire.with_plain_headers()
        self._later(AGAIN)


def _named(failed: Any) -> str:
    """The type of what went wrong and where; not its text, which may quote the message."""
    error = getattr(failed, "exception", failed)
    kind = type(getattr(error, "exc", error)).__name__
    frames = [line.strip() for line in str(getattr(failed, "traceback", "")).splitlines() if line.startswith("  File ")]
    return f"{kind}, {frames[-1]}" if frames else kind
