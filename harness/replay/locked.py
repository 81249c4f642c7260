"""A letter with its job's fence, both held: the ground on which anything is done to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.replay.errors import AlreadyReplayed, JobBusy, LetterClosed, NoSuchLetter
from harness.store.contents import evict
from harness.store.database import Database, sqlstate
from harness.store.letter import Letter
from harness.store.processed_jobs import FenceState, Key
from harness.store.store import Store

LOCK_NOT_AVAILABLE = "55P03"


@dataclass(frozen=True, slots=True)
class Held:
    """An open letter and its job's fence, both locked until `session` ends.

    `done`: the job has succeeded meanwhile, so that the letter has only to be resolved.
    """

    session: Session
    letter: Letter
    done: bool


@contextmanager
def held(database: Database, store: Store, service: str, letter_id: int, wait_ms: int) -> Iterator[Held]:
    """Lock fence, inbox row and letter in this order, in a transaction that is committed at the end of the block.

    Raises NoSuchLetter, LetterClosed, AlreadyReplayed (the job is in the inbox), JobBusy (a lock could not be had
    within `wait_ms` milliseconds) or DatabaseAway.
    """
    try:
        with database.begin() as session:
            store.fence.bound_waits(session, wait_ms)
            key = store.letters.key_of(session, service, letter_id)
            if key is None:
                raise NoSuchLetter(f"Service {service!r} has no letter {letter_id}: see `dead-letters list`.")
            state = _hold_fence(session, store, key, wait_ms)
            again = state is FenceState.CLAIMED or (
                # Without a row in the inbox nobody would ever try it: such a job is given back like a dead one.
                state is FenceState.WAITING and store.inbox.find(session, key) is not None
            )
            if not again:
                _clear(session, store, service, letter_id, key)  # the inbox is locked before the letter
            letter = store.letters.get(session, service, letter_id, lock=True)
            if letter is None:
                raise NoSuchLetter(f"Letter {letter_id} has just been pruned.")
            if letter.resolved_at is not None:
                how = "discarded" if letter.status == "discarded" else "resolved: its job has succeeded"
                raise LetterClosed(f"Letter {letter_id} is closed since {letter.resolved_at:%Y-%m-%d %H:%M}, {how}.")
            if again:
                raise AlreadyReplayed(
                    f"Letter {letter_id} is being tried again: its job waits in the inbox. It ends as resolved, or "
                    "comes back as pending_review."
                )
            yield Held(session, letter, state is FenceState.DONE)
    except DBAPIError as error:
        if sqlstate(error) != LOCK_NOT_AVAILABLE:
            raise
        raise JobBusy(
            f"The job of letter {letter_id} is at work: its rows were locked for {wait_ms / 1000:g} s. Try again later."
        ) from error


def _clear(session: Session, store: Store, service: str, letter_id: int, key: Key) -> None:
    """Remove a row that belongs to a copy without a say; one with another content becomes a letter of its own."""
    letter = store.letters.get(session, service, letter_id)
    if letter is None or not evict(session, store, letter.arrival):
        store.inbox.remove(session, key)


def _hold_fence(session: Session, store: Store, key: Key, wait_ms: int) -> FenceState:
    """The state of the job's fence, locked. One that is missing is put there: nobody may run the job now."""
    while True:
        fence = store.fence.look(session, key, lock=True)
        if fence is not None:
            return fence.state
        taken = store.fence.take(session, key, FenceState.DEAD, relayed=False, wait_ms=wait_ms)
        store.fence.bound_waits(session, wait_ms)
        if taken:
            return FenceState.DEAD


def resolve(store: Store, held: Held, actor: str, reason: str | None) -> None:
    """Close a letter whose job has succeeded, and say so in the audit log."""
    store.letters.resolve(held.session, held.letter.key)
    audit(store, held, actor, "resolved", reason)


def pass_on(database: Database, store: Store, letter: Letter) -> None:
    """After the commit: what has waited for this letter is due. Never raises."""
    if letter.ordering_key is not None and letter.sequence is not None:
        store.wake.next_of(database, letter.service, letter.ordering_key)


def audit(store: Store, held: Held, actor: str, action: str, reason: str | None) -> None:
    """Say who did what to the letter, and why."""
    letter = held.letter
    store.audit.write(
        held.session,
        service=letter.service,
        actor=actor,
        action=action,
        letter_id=letter.id,
        consumer=letter.consumer,
        job_id=letter.job_id,
        reason=reason,
        details={"replays": letter.replays},
    )
