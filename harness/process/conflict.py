"""One id, two contents: the second is no duplicate of the first. It becomes a dead letter under an id of its own.

The first job is not touched: fence, inbox row and letter of the id stay its own. The letter's id is the job's, `#` and
the beginning of the other content's digest, so that the same conflict again is a duplicate of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from harness.core.alike import conflict_id, digest_of_json, same_content
from harness.core.errors import HarnessError
from harness.core.failure import Failure, Kind
from harness.core.outcome import Dead, Stale
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.core.view import jsonable
from harness.process.copy import Copy
from harness.process.spec import Limits
from harness.store.database import Database
from harness.store.inbox import Arrival, InboxRow
from harness.store.processed_jobs import FenceRow, FenceState, Key
from harness.store.store import Store


class Conflicting(HarnessError):
    """The copy's content is not that of the job: `known` is the job's digest, `mine` the copy's. Nothing is written.

    `named` is the copy's digest in the form that all who say the same share, where that could be made.
    """

    def __init__(self, known: bytes, mine: bytes, named: bytes | None = None) -> None:
        super().__init__("one id, two contents")
        self.known, self.mine, self.named = known, mine, named or mine


def check(session: Session, store: Store, copy: Copy, fence: FenceRow) -> None:
    """Raise Conflicting where the copy's content is known not to be that of the fence's job."""
    mine = copy.arrival.digest or digest_of_json(copy.arrival.message)
    if mine is None:
        return
    known = fence.digest or _recorded(session, store, copy.key, fence.state)
    if known is not None and known != mine:
        raise Conflicting(known, mine)


def _recorded(session: Session, store: Store, key: Key, state: FenceState) -> bytes | None:
    """The digest of a job whose fence has none, for it was written by who could not read the message."""
    if state is FenceState.DEAD:
        letter = store.letters.open_one(session, key)
        return None if letter is None else letter.digest or digest_of_json(letter.message)
    row = store.inbox.find(session, key)
    return None if row is None else content_of(row)


def content_of(row: InboxRow) -> bytes | None:
    """The digest of a row's arguments, None where it can't be told."""
    return row.digest or digest_of_json(row.message)


def as_known(copy: Copy, found: Conflicting, signature: Signature, args: Sequence[Any], kwargs: Any) -> Copy | None:
    """The copy under the job's own digest, if it says the same in another form; else None."""
    if not isinstance(kwargs, Mapping) or not same_content(found.known, signature.sent, args, kwargs):
        return None
    return replace(copy, arrival=replace(copy.arrival, digest=found.known))


def record_conflict(
    database: Database, store: Store, copy: Copy, found: Conflicting, limits: Limits, payload: Any = None
) -> Dead | Stale:
    """Write the letter of a copy that conflicts, and take its row, where it has one, out of the inbox."""
    with database.begin() as session:
        store.fence.bound_waits(session, limits.fence_wait_ms)
        # The first job's fence is held meanwhile: its state, and so whose the row is, does not change.
        store.fence.look(session, copy.key, lock=True)
        dead = file(session, store, copy.arrival, found, worker=copy.worker, payload=payload)
        if copy.generation is not None:
            store.inbox.claim(session, copy.key, copy.generation)
    return dead


def evict(session: Session, store: Store, arrival: Arrival) -> bool:
    """Make room in the inbox for a job whose fence is held: a row with another content becomes a letter.

    Nobody works on such a row, for it would hold the fence. True where there was one.
    """
    key = Key(arrival.job_id, arrival.consumer)
    row = store.inbox.find(session, key)
    mine = arrival.digest or digest_of_json(arrival.message)
    if row is None or row.letter_id is not None or mine is None:
        return False
    other = content_of(row)
    if other is None or other == mine:
        return False
    store.inbox.remove(session, key)
    theirs = Arrival(
        service=row.service,
        consumer=row.consumer,
        task=row.task,
        job_id=row.job_id,
        message=row.message,
        digest=other,
        ordering_key=row.ordering_key,
        sequence=row.sequence,
        xid=row.xid,
        tenant=row.tenant,
        priority=row.priority,
        correlation_id=row.correlation_id,
    )
    file(session, store, theirs, Conflicting(mine, other))
    return True


def file(
    session: Session,
    store: Store,
    arrival: Arrival,
    found: Conflicting,
    *,
    worker: str = "",
    payload: Any = None,
) -> Dead | Stale:
    """Write fence, letter and audit row of the other content. Stale where they are there: the same conflict again."""
    own_id = conflict_id(arrival.job_id, found.named)
    failure = conflict_failure(arrival.job_id, found.known, found.mine)
    theirs = replace(arrival, digest=found.mine)
    wanted = store.conflicts.write(theirs, own_id, failure, now(), actor=worker, payload=jsonable(payload))
    letter_id = session.execute(wanted.sql, wanted.values).scalar()
    return Stale(conflict=True) if letter_id is None else Dead(Reason.conflict, 0, failure, letter_id, own_id)


def conflict_failure(job_id: str, known: bytes, mine: bytes) -> Failure:
    """What the letter says of it."""
    text = (
        f"the id {job_id} stands for another content: sha256 {known.hex()[:16]}… of its arguments came first, these "
        f"have {mine.hex()[:16]}…. The first job is not touched; this one has not run"
    )
    return Failure(Kind.conflict, "Conflict", text, fingerprint="conflict")


def now() -> str:
    """As the failures of a letter say when."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
