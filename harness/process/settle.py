"""A copy that may not decide, for its fence is somebody else's: a duplicate, or stale."""

from sqlalchemy.orm import Session

from harness.core.errors import HarnessError
from harness.core.outcome import Duplicate, Stale
from harness.process import conflict
from harness.process.claim import number_of
from harness.process.copy import Copy
from harness.process.spec import Limits
from harness.store.contents import is_other
from harness.store.database import Database, seconds_until
from harness.store.processed_jobs import FenceState
from harness.store.store import Store


class NotRelayed(HarnessError):
    """A copy with the relay's marks of whose job there is no trace: the marks are not the relay's."""


class Abandoned(HarnessError):
    """A copy that has found a claim which nobody will complete: `generation` is the claim's number."""

    def __init__(self, generation: int) -> None:
        super().__init__(str(generation))
        self.generation = generation


def settle_alone(
    database: Database, store: Store, copy: Copy, limits: Limits, *, decided: bool = False
) -> Duplicate | Stale:
    """The same in a transaction of its own. Raises DatabaseAway."""
    with database.begin() as session:
        store.fence.bound_waits(session, limits.fence_wait_ms)
        return settle(session, store, copy, decided=decided)


def settle(session: Session, store: Store, copy: Copy, *, decided: bool = False) -> Duplicate | Stale:
    """Say what the copy is. For a job that is done, close what is still open for it: its letter, and its inbox row
    unless that still stands for what comes after the job.

    Raises NotRelayed: dropping such a copy as stale would lose a job that nobody else knows of. Raises Abandoned for
    a claim that nobody will complete, Conflicting for a copy with another content, unless it is `decided` that it has
    the job's.
    """
    fence = store.fence.look(session, copy.key, lock=True)
    if fence is not None and not decided:
        conflict.check(session, store, copy, fence)
    if fence is None and copy.relayed and store.inbox.find(session, copy.key) is None:
        raise NotRelayed(copy.key.job_id)
    if fence is None or fence.state is not FenceState.DONE:
        if fence is not None and fence.state is FenceState.DEAD and copy.generation is not None:
            # A copy that found the fence busy put the row there before the job died: nobody else would ever remove it.
            _remove_row(session, store, copy, copy.generation)
        if fence is not None and fence.state is FenceState.CLAIMED:
            _refuse_abandoned(session, store, copy)
        return Stale(dead=fence is not None and fence.state is FenceState.DEAD)
    if not copy.goes_on:
        _remove_row(session, store, copy)
    store.letters.resolve(session, copy.key)
    return Duplicate(fence.result)


def _remove_row(session: Session, store: Store, copy: Copy, generation: int | None = None) -> None:
    """Remove the job's row, or only that of `generation`. One with another content stays, and the relay sends it."""
    if not copy.relayed and copy.arrival.digest is not None:
        store.inbox.remove(session, copy.key, digest=copy.arrival.digest)
        return
    row = store.inbox.find(session, copy.key)
    if row is not None and generation in (None, row.generation) and not is_other(store, row, copy.arrival):
        store.inbox.claim(session, copy.key, row.generation)


def _refuse_abandoned(session: Session, store: Store, copy: Copy) -> None:
    """Raise Abandoned where the claim's time is over, or the claim is this delivery's own.

    The first is known by the relay, which sends a claimed row only then; the second by the parent, whose child is dead.
    Every other copy is stale: the inbox row has the job.
    """
    row = store.inbox.find(session, copy.key)
    if row is None:
        return
    over = row.generation == copy.generation and seconds_until(session, row.available_at) <= 0
    if over or (copy.claim is not None and number_of(copy.claim) == row.generation):
        raise Abandoned(row.generation)
