"""Discard: closes a letter for good, with a reason. Its job never runs again."""

from harness.core.events import Discarded, Events
from harness.replay.errors import ReasonMissing
from harness.replay.locked import audit, held, pass_on, resolve
from harness.replay.replay import WAIT_MS, Result
from harness.store.database import Database
from harness.store.store import Store


def check_reason(reason: str) -> str:
    """The reason without blanks around it; ReasonMissing when nothing is left of it."""
    if not reason or not reason.strip():
        raise ReasonMissing("A letter is discarded for a reason only: say why its job need not be done.")
    return reason.strip()


def discard(
    database: Database,
    store: Store,
    service: str,
    letter_id: int,
    actor: str,
    events: Events,
    reason: str,
    *,
    wait_ms: int = WAIT_MS,
) -> Result:
    """Close an open letter whose job need not be done. Where the job has succeeded meanwhile, it is resolved instead.

    Raises ReasonMissing and the other `Refused` errors, DatabaseAway; then nothing was changed.
    """
    reason = check_reason(reason)
    with held(database, store, service, letter_id, wait_ms) as it:
        done = it.done
        if done:
            resolve(store, it, actor, reason)
        else:
            store.letters.discard(it.session, letter_id, actor=actor, reason=reason)
            audit(store, it, actor, "discarded", reason)
    pass_on(database, store, it.letter)
    if done:
        return Result.resolved
    events.emit(Discarded(letter_id, actor, service))
    return Result.discarded
