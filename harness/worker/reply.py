"""The child's proof to the parent: the outcome is committed, or it is not."""

from typing import Any, NamedTuple

from celery.utils.saferepr import saferepr

from harness.core.outcome import Completed, Duplicate, Outcome
from harness.worker import kept, monitor


class Reply(NamedTuple):
    """The proof that the parent acts on: `outcome` is committed. `event` is what Celery's monitors are told of it.

    `outcome` is one of completed, duplicate, stale, deferred, dead; or unrecorded: nothing is committed, or what comes
    after the job is not sent: do not ack, and `text` says why.
    """

    outcome: str
    text: str = ""
    event: monitor.Event | None = None


def reply_of(outcome: Outcome, error: BaseException | None, seconds: float) -> Reply:
    """What is said of an outcome; `error` is what the handler raised, `seconds` how long it took."""
    result = ""
    match outcome:
        case Completed(value):
            result = "None" if value is None else saferepr(value, monitor.LONGEST)
        case Duplicate(stored) if stored is not None:
            result = saferepr(known(stored), monitor.LONGEST)
    return Reply(type(outcome).__name__.lower(), event=monitor.event_of(outcome, error, result, seconds))


def known(stored: object) -> Any:
    """The result that a fence has kept, None where it has none."""
    found = kept.read(stored)
    return found if kept.is_known(found) else None
