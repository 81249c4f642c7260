"""A copy whose content is not that of its id's job: no duplicate, but a dead letter under an id of its own.

What stands in the database for it is told in `harness.store.contents`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from harness.core.alike import same_content
from harness.core.errors import HarnessError
from harness.core.outcome import Dead, Stale
from harness.core.reason import Reason
from harness.core.signature import Signature
from harness.core.view import jsonable
from harness.process.copy import Copy
from harness.process.spec import Limits
from harness.store.contents import content_of, file, is_other, says, take_out
from harness.store.database import Database
from harness.store.processed_jobs import FenceRow, FenceState, Key
from harness.store.store import Store


class Conflicting(HarnessError):
    """The copy's content is not that of the job: `known` is the job's digest, `mine` the copy's. Nothing is written.

    `named` is the copy's digest in the form that all who say the same share, where that could be made.
    """

    def __init__(self, known: bytes, mine: bytes, named: bytes | None = None) -> None:
        super().__init__("one id, two contents")
        self.known, self.mine, self.named = known, mine, named


def check(session: Session, store: Store, copy: Copy, fence: FenceRow) -> None:
    """Raise Conflicting where the copy's content is known not to be that of the fence's job."""
    mine = content_of(copy.arrival)
    if mine is None:
        return
    known = fence.digest or _recorded(session, store, copy.key, fence.state)
    if known is not None and known != mine and not says(store, copy.arrival, known):
        raise Conflicting(known, mine)


def _recorded(session: Session, store: Store, key: Key, state: FenceState) -> bytes | None:
    """The digest of a job whose fence has none, for it was written by who could not read the message."""
    dead = state is FenceState.DEAD
    known = store.letters.open_of(session, key) if dead else store.inbox.find(session, key)
    return None if known is None else content_of(known)


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
        filed = file(
            session,
            store,
            copy.arrival,
            found.known,
            found.mine,
            named=found.named,
            worker=copy.worker,
            payload=jsonable(payload),
        )
        row = store.inbox.find(session, copy.key)
        if row is not None and row.generation == copy.generation and not is_other(store, row, copy.arrival):
            take_out(session, store, row, filed)
    if filed.letter_id is None:
        return Stale(conflict=True)  # the same conflict again
    return Dead(Reason.conflict, 0, filed.failure, filed.letter_id, filed.own_id)
