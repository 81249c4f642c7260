"""What happened, told to whoever listens: logs, metrics, Sentry, alerts. Always told after the commit."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from harness.core.reason import Reason

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Event:
    """Anything that happened."""


@dataclass(frozen=True, kw_only=True)
class JobEvent(Event):
    """A delivery of a job ended. `attempt` counts from 1; `task` is Celery's name, where it is known."""

    service: str
    consumer: str
    job_id: str
    task: str = ""
    attempt: int = 1
    correlation_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobCompleted(JobEvent):
    """Work and fence are committed; it took `seconds`."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class JobDuplicate(JobEvent):
    """A copy of a job that was done before."""


@dataclass(frozen=True, kw_only=True)
class JobStale(JobEvent):
    """A copy of a job that the inbox or a letter owns by now."""


@dataclass(frozen=True, kw_only=True)
class JobDeferred(JobEvent):
    """The job waits `delay` seconds in the inbox, because of an error of this type."""

    delay: float
    error_type: str


@dataclass(frozen=True, kw_only=True)
class JobDead(JobEvent):
    """The job became the dead letter `letter_id`."""

    reason: Reason
    letter_id: int
    error_type: str
    message: str
    fingerprint: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class MessageReceived(JobEvent):
    """A source has taken a message in: its job is in the inbox."""

    source: str


@dataclass(frozen=True, kw_only=True)
class MessageDuplicate(JobEvent):
    """A source met a message that was taken in before; its job is `state`: waiting, done or dead."""

    source: str
    state: str


@dataclass(frozen=True)
class Replayed(Event):
    """`actor` sent the letter's job again."""

    letter_id: int
    actor: str
    service: str = ""


@dataclass(frozen=True)
class Discarded(Event):
    """`actor` closed the letter without a replay."""

    letter_id: int
    actor: str
    service: str = ""


@dataclass(frozen=True)
class Relayed(Event):
    """The relay published `count` copies."""

    count: int
    service: str = ""


@dataclass(frozen=True)
class Pruned(Event):
    """`count` rows of `table` were deleted, for nothing can need them any more."""

    table: str
    count: int
    service: str = ""


class Events:
    """Passes events to its subscribers, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[Event], None], ...] = ()

    def subscribe(self, fn: Callable[[Event], None]) -> None:
        """Have `fn` called with every event from now on. Subscribing it twice changes nothing."""
        if fn not in self._subscribers:
            self._subscribers = (*self._subscribers, fn)

    def emit(self, event: Event) -> None:
        """Tell every subscriber. One that raises is logged, and neither the others nor the job notice."""
        for fn in self._subscribers:
            try:
                fn(event)
            except Exception:
                _log.exception("a subscriber failed on %s; the event's outcome stands", type(event).__name__)
