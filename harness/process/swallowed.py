"""A statement of the handler failed, and the handler went on: PostgreSQL has given up the whole transaction by then."""

from typing import Any

from psycopg2 import Error
from sqlalchemy.exc import DBAPIError, PendingRollbackError

from harness.core.errors import TransactionRefused
from harness.core.text import bounded
from harness.store.database import AT_ONCE
from harness.store.guard import IN_FAILED_TRANSACTION

_LONGEST = 2_000


def refused(raw: Any) -> TransactionRefused:
    """What is said of it, with the error that the handler has swallowed. `raw`: the driver's connection."""
    first = f" What it swallowed: {bounded(raw.failed[1], _LONGEST)}" if raw.failed else ""
    return TransactionRefused(
        "A statement of the handler failed and the handler went on: PostgreSQL has given up the whole transaction, "
        "so nothing of it can be committed. Let the exception through, or run the statement that may fail inside "
        f"`with session.begin_nested():`.{first}"
    )


def swallowed(error: BaseException, raw: Any) -> TransactionRefused | None:
    """Does `error`, with which the handler ended, only say that an earlier one was swallowed? Then what is said of it.

    Not where the earlier one asks for nothing but another try.
    """
    if raw.failed and raw.failed[0] in AT_ONCE:
        return None
    root: Any = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(root, Error):
        cursor = getattr(root, "cursor", None)
        mine = root.pgcode == IN_FAILED_TRANSACTION and cursor is not None and cursor.connection is raw
        if not mine:
            return None
    elif not (isinstance(error, PendingRollbackError) and raw.ended):
        return None
    made = refused(raw)
    made.__cause__ = error
    return made
