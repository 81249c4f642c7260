"""Many letters, each in a transaction of its own: one that fails does not undo the others, and no two fences are
held at once, so that a bulk replay can't deadlock with the workers."""

import logging
from collections.abc import Callable, Sequence

import tenacity

from harness.core.events import Events
from harness.replay.discard import check_reason, discard
from harness.replay.errors import Refused
from harness.replay.replay import Result, replay
from harness.store.database import Database, DatabaseAway
from harness.store.store import Store

log = logging.getLogger("harness")

#: Called after each letter with its number and what was done, or the error because of which nothing was.
Progress = Callable[[int, Result | Exception], None]
#: Shorter than for a single letter: a thousand letters must not wait for a thousand busy jobs in turn.
WAIT_MS = 1000


def replay_many(
    database: Database,
    store: Store,
    service: str,
    letter_ids: Sequence[int],
    actor: str,
    events: Events,
    progress: Progress | None = None,
    reason: str | None = None,
) -> dict[str, int]:
    """Replay letters; returns how many were `replayed`, `resolved`, `refused` and `failed`. Never raises for a letter.

    Once the database is away, the rest is counted as failed without a try: calling again with the same numbers
    does what is left, for the others are refused then.
    """

    def one(letter_id: int) -> Result:
        return replay(database, store, service, letter_id, actor, events, reason, wait_ms=WAIT_MS)

    return _each(letter_ids, one, Result.replayed, progress)


def discard_many(
    database: Database,
    store: Store,
    service: str,
    letter_ids: Sequence[int],
    actor: str,
    events: Events,
    reason: str,
    progress: Progress | None = None,
) -> dict[str, int]:
    """Discard letters; counts as `replay_many`, with `discarded`. Raises ReasonMissing before it does anything."""
    why = check_reason(reason)

    def one(letter_id: int) -> Result:
        return discard(database, store, service, letter_id, actor, events, why, wait_ms=WAIT_MS)

    return _each(letter_ids, one, Result.discarded, progress)


def _each(
    letter_ids: Sequence[int], one: Callable[[int], Result], wanted: Result, progress: Progress | None
) -> dict[str, int]:
    counts = {str(wanted): 0, str(Result.resolved): 0, "refused": 0, "failed": 0}
    away: DatabaseAway | None = None
    for letter_id in dict.fromkeys(letter_ids):
        what: Result | Exception
        try:
            if away is not None:
                raise away
            what = _patiently(one, letter_id)
            counts[str(what)] += 1
        except Refused as error:
            what = error
            counts["refused"] += 1
        except Exception as error:
            what = error
            counts["failed"] += 1
            if away is None:
                log.warning("letter %d: %s: %s", letter_id, type(error).__name__, error)
            away = error if isinstance(error, DatabaseAway) else away
        if progress is not None:
            progress(letter_id, what)
    return counts


def _patiently(one: Callable[[int], Result], letter_id: int) -> Result:
    """A connection that has gone stale in the pool, or a short restart, is not worth a failure."""
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(DatabaseAway),
        wait=tenacity.wait_exponential(multiplier=0.2),
        stop=tenacity.stop_after_attempt(4),
        reraise=True,
    )
    return retrying(one, letter_id)
