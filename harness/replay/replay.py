"""Replay: gives a dead job back to the inbox. It publishes nothing; the relay does, and the fence still decides."""

from dataclasses import replace
from enum import StrEnum

from harness.core.events import Events, Replayed
from harness.replay.errors import LetterChanged, NoMessage
from harness.replay.locked import Held, audit, held, pass_on, resolve
from harness.store.database import Database
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

#: Milliseconds to wait for a fence, an inbox row or a letter that somebody else holds.
WAIT_MS = 5000


class Result(StrEnum):
    """What was done. `resolved`: the job has succeeded meanwhile, so its letter was closed and nothing was sent."""

    replayed = "replayed"
    resolved = "resolved"
    discarded = "discarded"


def replay(
    database: Database,
    store: Store,
    service: str,
    letter_id: int,
    actor: str,
    events: Events,
    reason: str | None = None,
    *,
    seen: int | None = None,
    wait_ms: int = WAIT_MS,
) -> Result:
    """Have the job of an open letter tried again: same id, same bytes, all its tries.

    `seen` is the letter's count of replays that the caller decided on; where it has changed, LetterChanged is raised.
    Raises `Refused` (see `errors`) where there is nothing to replay, DatabaseAway; then nothing was changed.
    """
    with held(database, store, service, letter_id, wait_ms) as it:
        done = it.done
        if done:
            resolve(store, it, actor, reason)
        elif seen is not None and (it.letter.replays, it.letter.status) != (seen, "pending_review"):
            raise LetterChanged(f"Letter {letter_id} has been replayed by somebody else.")
        elif it.letter.has_no_message:
            raise NoMessage(
                f"Letter {letter_id} tells of a step of which no message could be made: there is nothing to replay. "
                "Send the step by hand as a new task (its arguments are in the payload), and discard the letter."
            )
        else:
            _give_back(store, it, actor, reason)
    pass_on(database, store, it.letter)
    if done:
        return Result.resolved
    events.emit(Replayed(letter_id, actor, service))
    return Result.replayed


def _give_back(store: Store, held: Held, actor: str, reason: str | None) -> None:
    letter, session = held.letter, held.session
    store.fence.set_state(session, letter.key, FenceState.WAITING)
    arrival = letter.arrival
    if letter.sequence is not None and (place := store.order.place_of(session, letter.id)):
        arrival = replace(arrival, xid=place.xid, sequence=place.sequence)  # it takes its old place
    store.inbox.add(session, arrival, fresh=True, replace=True, letter_id=letter.id)
    store.letters.replayed(session, letter.id, actor)
    audit(store, held, actor, "replayed", reason)
