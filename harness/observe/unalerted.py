"""Dead letters of which nobody has been told: their process died, or lost PostgreSQL's answer, after the verdict."""

import logging
from datetime import timedelta

from sqlalchemy.exc import DBAPIError

from harness.core.events import Events, JobDead
from harness.store.database import Database, DatabaseAway
from harness.store.letter import Letter
from harness.store.store import Store

log = logging.getLogger("harness")

#: The process that gave the verdict has had this time to tell of it.
AFTER = timedelta(seconds=60)
#: Older ones are history: a database that is new to the alerts does not ring for all of them.
WITHIN = timedelta(days=1)


def tell(database: Database, store: Store, events: Events, event: JobDead) -> None:
    """Emit the event of a new letter and note that in the letter. If the note fails, a sweep will tell of it again."""
    events.emit(event)
    try:
        with database.begin() as session:
            store.letters.alerted(session, event.letter_id)
    except (DatabaseAway, DBAPIError) as error:
        log.warning("dead letter %d: could not note that it was reported (%s)", event.letter_id, type(error).__name__)


def tell_forgotten(database: Database, store: Store, service: str, events: Events) -> int:
    """Emit the event of every pending letter that was not reported by its own process; returns how many.

    Each is reported at least once; twice where this process dies in between. Raises DatabaseAway.
    """
    with database.begin() as session:
        letters = store.letters.unalerted(session, service, after=AFTER, within=WITHIN)
        for letter in letters:
            events.emit(_event(letter))
        for letter in letters:
            store.letters.alerted(session, letter.id)
    return len(letters)


def _event(letter: Letter) -> JobDead:
    return JobDead(
        service=letter.service,
        consumer=letter.consumer,
        job_id=letter.job_id,
        task=letter.task,
        attempt=letter.attempts,
        correlation_id=letter.correlation_id,
        reason=letter.reason,
        letter_id=letter.id,
        error_type=letter.error_type,
        message=letter.error_message,
        fingerprint=letter.fingerprint,
        traceback=letter.traceback,
    )
