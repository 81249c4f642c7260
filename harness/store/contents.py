"""One id, two contents: which row of the inbox is whose, and the letter of the second.

The first job is not touched: fence, inbox row and letter of the id stay its own. The letter of the other content has an
id of its own, the job's, `#` and the beginning of the other content's digest, so that the same conflict again is a
duplicate of it.
"""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from harness.core.alike import conflict_id, digest_of_json
from harness.core.failure import Failure, Kind
from harness.core.message import Message
from harness.store.inbox import Arrival, InboxRow
from harness.store.letter import Letter
from harness.store.processed_jobs import Key
from harness.store.store import Store


class Filed(NamedTuple):
    """The letter of another content: `letter_id` is None where it was there already."""

    own_id: str
    letter_id: int | None
    failure: Failure


def content_of(known: InboxRow | Arrival | Letter) -> bytes | None:
    """The digest of a job's arguments, None where it can't be told."""
    return known.digest or digest_of_json(known.message)


def is_other(store: Store, row: InboxRow, arrival: Arrival) -> bool:
    """Is it known that the row has another content than `arrival`? The relay's copy has the row's own bytes."""
    if _bytes(row.message) == _bytes(arrival.message):
        return False
    theirs, mine = content_of(row), content_of(arrival)
    return theirs is not None and mine is not None and theirs != mine and not says(store, arrival, theirs)


def says(store: Store, arrival: Arrival, known: bytes) -> bool:
    """Does it say the content with the digest `known`, in another form: by position, or with a default written out?"""
    return store.forms.say(arrival.task, arrival.message, known)


def evict(session: Session, store: Store, arrival: Arrival) -> bool:
    """Make room in the inbox for a job whose fence is held: a row with another content becomes a letter.

    Nobody works on such a row, for it would hold the fence. True where there was one.
    """
    row = store.inbox.find(session, Key(arrival.job_id, arrival.consumer))
    if row is None or not is_other(store, row, arrival):
        return False
    filed = file(session, store, arrival_of(row), content_of(arrival) or b"", content_of(row) or b"")
    take_out(session, store, row, filed)
    return True


def take_out(session: Session, store: Store, row: InboxRow, filed: Filed) -> None:
    """Remove the row of a content that has its letter now; the letter that the row was a replay of is closed by it."""
    store.inbox.claim(session, row.key, row.generation)
    if row.letter_id is not None:
        store.letters.supersede(session, row.letter_id, filed.letter_id)


def file(
    session: Session,
    store: Store,
    arrival: Arrival,
    known: bytes,
    mine: bytes,
    *,
    named: bytes | None = None,
    worker: str = "",
    payload: Any = None,
) -> Filed:
    """Write fence, letter and audit row of the content `mine`, where `known` is what the id stands for.

    Its id is made of the form that all who say the same share, where that can be told; `named` is its digest, for who
    knows it. `payload`: a view for people, of JSON's own types.
    """
    own_id = conflict_id(arrival.job_id, named or store.forms.name(arrival.task, arrival.message) or mine)
    failure = conflict_failure(arrival.job_id, known, mine)
    wanted = store.conflicts.write(arrival, own_id, failure, now(), digest=mine, actor=worker, payload=payload)
    return Filed(own_id, session.execute(wanted.sql, wanted.values).scalar(), failure)


def arrival_of(row: InboxRow) -> Arrival:
    """A row as it was put in."""
    return Arrival(
        service=row.service,
        consumer=row.consumer,
        task=row.task,
        job_id=row.job_id,
        message=row.message,
        digest=row.digest,
        ordering_key=row.ordering_key,
        sequence=row.sequence,
        xid=row.xid,
        tenant=row.tenant,
        priority=row.priority,
        correlation_id=row.correlation_id,
    )


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


def _bytes(message: Message) -> tuple[bytes, str | None, str | None]:
    return message.body, message.content_type, message.content_encoding
