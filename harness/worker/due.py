"""Ids of the jobs in a beat schedule: from the entry and the time that it was due, so that two beats send one job.

Two beats run side by side by mistake, in a roll-out, or on purpose where one may be lost. Celery gives each message an
id of its own; under one id, the second is a duplicate.
"""

import logging
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

from celery.schedules import crontab, schedule

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log = logging.getLogger("harness")

#: The id of the job that beat is about to send; taken out by the first that is sent.
_ID: ContextVar[list[str]] = ContextVar("harness_due_id")


def take_id() -> str | None:
    """The id of the job that beat is sending now, once; None for a job that somebody else sends."""
    ids = _ID.get(None)
    return ids.pop() if ids else None


def install(app: Any, scheduler: Any) -> None:
    """Let `scheduler`, of any class, send the app's jobs under the ids of their entries."""
    reserve, apply_async = scheduler.reserve, scheduler.apply_async
    began: dict[str, datetime] = {}

    def reserving(entry: Any) -> Any:
        made = reserve(entry)
        began[entry.name] = made.last_run_at
        return made

    def applying(entry: Any, *args: Any, **kwargs: Any) -> Any:
        token = _ID.set(_ids(app, entry, began.get(entry.name)))
        try:
            return apply_async(entry, *args, **kwargs)
        finally:
            _ID.reset(token)

    scheduler.reserve, scheduler.apply_async = reserving, applying


def _ids(app: Any, entry: Any, now: datetime | None) -> list[str]:
    if now is None or not getattr(app.tasks.get(entry.task), "is_job", False):
        return []
    try:
        due = due_time(entry.schedule, entry.last_run_at, now)
    except Exception as error:
        log.warning("when %s was due can't be told (%r): a second beat sends it again", entry.name, error)
        return []
    return [] if due is None else [f"{entry.name}@{due.astimezone(UTC).isoformat()}"]


def due_time(when: Any, last_run: datetime, now: datetime) -> datetime | None:
    """When the run that begins `now` was due; the same for each beat. None for a schedule of an unknown kind.

    A crontab: the first time after the last run. An interval: the beginning of its slot, counted from 1970, for each
    beat counts from its own last run; two runs of one beat are never in the same slot.
    """
    if isinstance(when, crontab):
        start, remaining, _ = when.remaining_delta(last_run)
        due: datetime = start + remaining
        return due
    if isinstance(when, schedule):
        return _slot(now, when.run_every)
    return None


def _slot(now: datetime, every: timedelta) -> datetime | None:
    aware = now if now.tzinfo else now.replace(tzinfo=UTC)
    return _EPOCH + (aware - _EPOCH) // every * every if every > timedelta(0) else None
