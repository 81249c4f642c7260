"""What taking messages in does, step by step, without a connection: the caller's, or the receiver's own."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Row

from harness.core.alike import conflict_id
from harness.enqueue.put import Read, Same, alike, digest_of
from harness.store.conflicts import Conflicts
from harness.store.contents import conflict_failure, now
from harness.store.enqueueing import Enqueueing, Entry, Statement
from harness.store.processed_jobs import FenceState, Key

#: The digest of an entry's arguments in the form that all who say the same share.
Name = Callable[[Entry], bytes]
#: A job that is put in and decided by others between two looks is looked at again, so often at most.
_LOOKS = 5


class ReceiveState(StrEnum):
    """What a receive found. `received` and `conflict` have written something, the others nothing."""

    received = "received"
    """The message is new: its job is in the inbox when the transaction commits."""
    waiting = "waiting"
    """It was taken in before; its job waits or is at work."""
    done = "done"
    """It was taken in before; its job has been done."""
    dead = "dead"
    """It was taken in before; its job is a dead letter, or was discarded."""
    conflict = "conflict"
    """Its id was used before with other content: it is a dead letter of its own."""


@dataclass(frozen=True, slots=True)
class Received:
    """The answer to a receive. `job_id` is a conflict's own; `letter_id` that of its letter where it is a new one."""

    job_id: str
    state: ReceiveState = ReceiveState.received
    letter_id: int | None = None

    @property
    def is_new(self) -> bool:
        """Has this call put the job in?"""
        return self.state is ReceiveState.received


Steps = Generator[Statement, Sequence[Row[Any]], list[Received]]


def take(
    sql: Enqueueing, conflicts: Conflicts, service: str, entries: Sequence[Entry], read: Read, same: Same, name: Name
) -> Steps:
    """Take messages in; yields statements, is sent their rows, returns one answer for each entry, in order.

    One statement where every message is new. What conflicts becomes a letter, with one more statement each.
    """
    firsts: dict[Key, Entry] = {}
    for entry in entries:
        firsts.setdefault(entry.key, entry)
    found: dict[Key, tuple[ReceiveState, bytes | None]] = {}
    for _ in range(_LOOKS):
        missing = {key: entry for key, entry in firsts.items() if key not in found}
        if not missing:
            break
        new = yield sql.insert(service, missing.values())
        for row in new:
            key = Key(row.job_id, row.consumer)
            found[key] = (ReceiveState.received, firsts[key].arrival.digest)
        if known := [key for key in missing if key not in found]:
            rows = yield sql.look(known)
            found |= _known(rows, read)
    answers: list[Received] = []
    for entry in entries:
        # What came and went five times is at work: its fence decides.
        state, digest = found.get(entry.key, (ReceiveState.waiting, None))
        if not alike(entry, digest, same):
            answers.append((yield from _conflict(conflicts, entry, digest or b"", name(entry))))
            continue
        again = state is ReceiveState.received and entry is not firsts[entry.key]
        answers.append(Received(entry.key.job_id, ReceiveState.waiting if again else state))
    return answers


def _known(rows: Sequence[Row[Any]], read: Read) -> dict[Key, tuple[ReceiveState, bytes | None]]:
    found = {}
    for row in rows:
        decided = row.state in (FenceState.DONE, FenceState.DEAD)
        if not decided and row.row_id is None:
            continue  # it went between the two statements: try again
        state = ReceiveState(row.state) if decided else ReceiveState.waiting
        found[Key(row.job_id, row.consumer)] = (state, digest_of(row, read))
    return found


def _conflict(
    conflicts: Conflicts, entry: Entry, known: bytes, named: bytes
) -> Generator[Statement, Sequence[Row[Any]], Received]:
    arrival = entry.arrival
    mine = arrival.digest or b""
    own_id = conflict_id(arrival.job_id, named)
    failure = conflict_failure(arrival.job_id, known, mine)
    rows = yield conflicts.write(arrival, own_id, failure, now(), payload=None)
    return Received(own_id, ReceiveState.conflict, rows[0].letter_id if rows else None)
