"""Rows of the inbox for tasks that are no jobs of the service: handed to the broker once, then done with.

A job takes its own row out of the inbox. Another task knows nothing of the inbox, so that its row would be sent again
for ever. Such rows come from an operator's replay only: of a next step that could not be sent.
"""

from collections.abc import Iterable

from sqlalchemy.orm import Session

from harness.store.inbox import InboxRow
from harness.store.processed_jobs import FenceState
from harness.store.store import Store

#: Part of the consumer. A message's task may be called so, too: only a replay's row counts.
_MARK = "outside:"


def consumer_of(service: str, task: str) -> str:
    """The second half of the fence's key of a step that is no job of `service`."""
    return f"{service}/{_MARK}{task}"


def is_outside(row: InboxRow) -> bool:
    """Is it the replay of a step that is no job of the service?"""
    return row.letter_id is not None and row.consumer.startswith(f"{row.service}/{_MARK}")


def let_go(session: Session, store: Store, rows: Iterable[InboxRow]) -> None:
    """The broker has taken these rows' messages: remove the rows and close their letters. Fence first, as everywhere.

    A relay that dies just before sends them once more: what is no job runs at least once. The fence goes, too: should
    the task be one that a worker of the service waits for under the same name, its copy is a new one.
    """
    for row in sorted(rows, key=lambda row: row.key):
        fence = store.fence.look(session, row.key, lock=True)
        if fence is None or fence.state is not FenceState.WAITING:
            continue  # somebody has made a job of it, and has claimed or decided it
        if store.inbox.claim(session, row.key, row.generation) is None:
            continue
        store.letters.resolve(session, row.key)
        store.fence.forget(session, row.key)
