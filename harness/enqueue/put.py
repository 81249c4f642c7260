"""What an enqueue does, step by step, without a connection: sync and async callers run the same steps."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Row

from harness.core.errors import ConflictingJob
from harness.core.message import Message
from harness.store.enqueueing import Enqueueing, Entry, Statement
from harness.store.inbox import message_of
from harness.store.processed_jobs import FenceState, Key

#: The digest of a stored message's arguments. Raises whatever is wrong with it.
Read = Callable[[Message], bytes]
#: Do these arguments say the content with this digest, in another form?
Same = Callable[[Entry, bytes], bool]
#: A job that is put in and decided by others between two looks is looked at again, so often at most.
_LOOKS = 5


class EnqueueState(StrEnum):
    """What an enqueue found. Only `enqueued` has written anything."""

    enqueued = "enqueued"
    """The job is new: it is in the inbox when the caller's transaction commits."""
    waiting = "waiting"
    """The same job is in the inbox already, waiting or at work."""
    done = "done"
    """The same job has been done."""
    dead = "dead"
    """The same job is a dead letter, or was discarded: it is replayed, or sent again under another id."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer to an enqueue."""

    job_id: str
    state: EnqueueState = EnqueueState.enqueued

    @property
    def is_new(self) -> bool:
        """Has this call put the job in?"""
        return self.state is EnqueueState.enqueued


Steps = Generator[Statement, Sequence[Row[Any]], list[Enqueued]]


def put(sql: Enqueueing, service: str, entries: Sequence[Entry], read: Read, same: Same) -> Steps:
    """Put jobs in; yields statements, is sent their rows, returns one answer for each entry, in order.

    One statement where every job is new. Raises ConflictingJob where an id is known with other arguments; the caller's
    transaction is then to be rolled back, for others of these jobs may have been written.
    """
    wanted = _distinct(entries, same)
    found: dict[Key, EnqueueState] = {}
    for _ in range(_LOOKS):
        missing = {key: entry for key, entry in wanted.items() if key not in found}
        if not missing:
            break
        new = yield sql.insert(service, missing.values())
        found |= {Key(row.job_id, row.consumer): EnqueueState.enqueued for row in new}
        if known := [key for key in missing if key not in found]:
            rows = yield sql.look(known)
            found |= _known(rows, wanted, read, same)
    # What came and went five times is at work: its fence decides.
    return [Enqueued(entry.key.job_id, found.get(entry.key, EnqueueState.waiting)) for entry in entries]


def _distinct(entries: Sequence[Entry], same: Same) -> dict[Key, Entry]:
    wanted: dict[Key, Entry] = {}
    for entry in entries:
        first = wanted.setdefault(entry.key, entry)
        if not alike(entry, first.arrival.digest, same):
            raise _conflict(entry.key, "in the same call")
    return wanted


def _known(rows: Sequence[Row[Any]], wanted: dict[Key, Entry], read: Read, same: Same) -> dict[Key, EnqueueState]:
    found: dict[Key, EnqueueState] = {}
    for row in rows:
        key = Key(row.job_id, row.consumer)
        decided = row.state in (FenceState.DONE, FenceState.DEAD)
        if not decided and row.row_id is None:
            continue  # it went between the two statements: try again
        if not alike(wanted[key], digest_of(row, read), same):
            raise _conflict(key, "before")
        found[key] = EnqueueState(row.state) if decided else EnqueueState.waiting
    return found


def alike(entry: Entry, known: bytes | None, same: Same) -> bool:
    """Has the entry the content with the digest `known`, as far as can be told?"""
    mine = entry.arrival.digest
    return known is None or known == mine or mine is None or same(entry, known)


def digest_of(row: Row[Any], read: Read) -> bytes | None:
    """The digest under which the job is known; None where nobody could tell."""
    known = row.row_digest if row.fence_digest is None else row.fence_digest
    if known is not None:
        return bytes(known)
    if row.row_id is None:
        return None
    try:
        return read(message_of(row))
    except Exception:  # a message that cannot be read is not the one at hand
        return b""


def _conflict(key: Key, where: str) -> ConflictingJob:
    return ConflictingJob(
        f"The job id {key.job_id!r} of {key.consumer!r} was used {where} with other arguments, so this is not the same "
        "job again and nothing is enqueued. Enqueue it under another job_id, or leave it out if the first one stands."
    )
