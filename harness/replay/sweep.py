"""The sweep: replays the letters of jobs that have a gate, where the gate says that it can succeed now."""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.core.events import Events
from harness.core.reason import Reason
from harness.replay.errors import Refused
from harness.replay.gate import Decode, Gated, arguments_of, ask, looking
from harness.replay.replay import replay
from harness.store.database import Database, DatabaseAway
from harness.store.letter import Letter
from harness.store.store import Store

log = logging.getLogger("harness")

#: A job that is at work is left for the next sweep.
WAIT_MS = 500
GATE_OPEN = "the gate says that it can succeed now"


def sweep(
    database: Database, store: Store, jobs: Mapping[str, Gated], actor: str, events: Events, decode: Decode
) -> dict[str, int]:
    """Look at every pending letter of every job that has a gate; returns how many were

    `replayed`; `resolved` (the job had succeeded); `not_yet` (the gate said no: untouched, no try counted); `surfaced`
    (too old or replayed too often: from now on it waits for a person); `skipped` (another sweep or a person had it, or
    its arguments don't fit the handler); `failed` (the gate or the database raised: logged, untouched).

    Any number of sweeps may run at once. Raises DatabaseAway.
    """
    counts = dict.fromkeys(("replayed", "resolved", "not_yet", "surfaced", "skipped", "failed"), 0)
    for job in jobs.values():
        if job.can_replay is None:
            continue
        with database.begin() as session:
            ids = store.letters.pending_ids(session, job.service, job.task, job.consumer)
        for letter_id in ids:
            try:
                counts[_one(database, store, job, letter_id, actor, events, decode)] += 1
            except DatabaseAway:
                raise
            except Exception as error:
                if isinstance(error, DBAPIError) and error.connection_invalidated:
                    raise DatabaseAway(str(error.orig)) from error
                log.exception("replay sweep: letter %d of %s is left as it is", letter_id, job.task)
                counts["failed"] += 1
    return counts


def _one(
    database: Database, store: Store, job: Gated, letter_id: int, actor: str, events: Events, decode: Decode
) -> str:
    with looking(database) as session:
        # The claim lasts as long as this transaction, that is over the replay, which has a transaction of its own.
        letter = store.letters.claim(session, job.service, letter_id)
        if letter is None:
            return "skipped"
        if why := _for_a_person(session, job, letter):
            return _surface(database, store, letter, actor, why)
        try:
            arguments = arguments_of(job, letter.message, decode)
        except Exception as error:
            log.info("replay sweep: letter %d of %s has no arguments for its gate: %s", letter_id, job.task, error)
            return "skipped"
        if not ask(job, session, arguments):
            return "not_yet"
        try:
            known = {"seen": letter.replays, "wait_ms": WAIT_MS}
            return str(replay(database, store, job.service, letter_id, actor, events, GATE_OPEN, **known))
        except Refused as error:
            log.info("replay sweep: %s", error)
            return "skipped"


def _for_a_person(session: Session, job: Gated, letter: Letter) -> str | None:
    """Why no machine is to replay this letter any more; by the database's clock."""
    if letter.reason is Reason.outcome_unknown:
        return "its call may have taken effect: no machine may make it again (outcome_unknown)"
    if letter.reason is Reason.conflict:
        return "its id stands for another content: to run it as well is for a person to decide"
    if letter.replays >= job.max_replays:
        return f"replayed {letter.replays} times already (max_replays = {job.max_replays})"
    now: datetime = session.execute(select(func.now())).scalar_one()
    if now - letter.created_at > timedelta(seconds=job.max_age):
        return f"older than {timedelta(seconds=job.max_age)} (max_age)"
    return None


def _surface(database: Database, store: Store, letter: Letter, actor: str, why: str) -> str:
    with database.begin() as session:
        now = store.letters.get(session, letter.service, letter.id, lock=True)
        if now is None or (now.status, now.surfaced, now.replays) != ("pending_review", None, letter.replays):
            return "skipped"
        store.letters.surface(session, letter.id, why)
        store.audit.write(
            session,
            service=letter.service,
            actor=actor,
            action="surfaced",
            letter_id=letter.id,
            consumer=letter.consumer,
            job_id=letter.job_id,
            reason=why,
            details={"replays": letter.replays},
        )
    log.warning("letter %d of %s needs a person: %s", letter.id, letter.task, why)
    return "surfaced"
