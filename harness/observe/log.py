"""Every log line of an outcome, in one place: one line per event, `event key=value …`, never a payload.

The fields also stand in the record's `harness` attribute, for a JSON formatter.
"""

import logging
import re
import shlex
from dataclasses import fields
from functools import lru_cache

from harness.core import events
from harness.core.events import Event

log = logging.getLogger("harness.events")

_NAMES: dict[type[Event], tuple[str, int]] = {
    events.JobCompleted: ("completed", logging.INFO),
    events.JobDuplicate: ("duplicate", logging.INFO),
    events.JobStale: ("stale", logging.INFO),
    events.JobDeferred: ("deferred", logging.WARNING),
    events.JobDead: ("dead", logging.ERROR),
    events.MessageReceived: ("received", logging.INFO),
    events.MessageDuplicate: ("received_before", logging.INFO),
    events.Replayed: ("replayed", logging.INFO),
    events.Discarded: ("discarded", logging.INFO),
    events.Relayed: ("relayed", logging.INFO),
    events.Pruned: ("pruned", logging.INFO),
}
#: Texts that can hold a part of the payload (an error message often does), or are too long for a line.
_LEFT_OUT = ("message", "traceback")
_UNCLEAR = re.compile(r'[\s"=]')
_FIRST = ("job_id", "task", "attempt", "correlation_id")


def write(event: Event) -> None:
    """Log one event."""
    name, level = _NAMES[type(event)]
    if not log.isEnabledFor(level):
        return
    ordered = {name: getattr(event, name) for name in _ORDER[type(event)]}
    line = " ".join(f"{key}={_plain(value)}" for key, value in ordered.items() if value is not None)
    line += _see(event)
    # As `log.log` does, but for a search of the stack for who called: it is always the same place.
    record = log.makeRecord(
        log.name, level, __file__, 0, "%s %s", (name, line), None, "write", {"harness": {"event": name, **ordered}}
    )
    log.handle(record)


def _see(event: Event) -> str:
    """The command that shows the error: what it says may be the payload's, and is in the database only."""
    if isinstance(event, events.JobDead):
        return f" see='harness dead-letters show {event.letter_id}'"
    if isinstance(event, events.JobDeferred):
        return f" see={_plain(f'harness inbox {shlex.quote(event.job_id)}')}"
    return ""


@lru_cache(1024, typed=True)  # the same few names and numbers stand in most lines
def _plain(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return repr(text) if _UNCLEAR.search(text) else text


def _order(kind: type[Event]) -> tuple[str, ...]:
    """The names of an event's fields as they stand in the line."""
    names = [field.name for field in fields(kind) if field.name not in _LEFT_OUT]
    return (*(name for name in _FIRST if name in names), *(name for name in names if name not in _FIRST))


_ORDER = {kind: _order(kind) for kind in _NAMES}
