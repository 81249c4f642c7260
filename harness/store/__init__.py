"""The tables and their SQL: one module per table, functions that take a Session and never commit.

Start at `processed_jobs.Fence`: every outcome of every job begins there.
"""

from harness.store.audit_log import Audit
from harness.store.database import Database, DatabaseAway
from harness.store.dead_letters import DeadLetters
from harness.store.guard import WorkSession
from harness.store.inbox import Inbox, InboxRow
from harness.store.letter import Letter
from harness.store.processed_jobs import Fence, FenceState, Key
from harness.store.store import Store

__all__ = [
    "Audit",
    "Database",
    "DatabaseAway",
    "DeadLetters",
    "Fence",
    "FenceState",
    "Inbox",
    "InboxRow",
    "Key",
    "Letter",
    "Store",
    "WorkSession",
]
