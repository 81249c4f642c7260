"""The tables of one schema, in the order in which their rows are locked; and beside them who was seen at work."""

from copy import copy
from functools import lru_cache

from harness.core.alike import Forms
from harness.store.audit_log import Audit
from harness.store.conflicts import Conflicts
from harness.store.dead_letters import DeadLetters
from harness.store.enqueueing import Enqueueing
from harness.store.inbox import Inbox
from harness.store.order import Order
from harness.store.presence import Presence
from harness.store.processed_jobs import Fence
from harness.store.schema import tables_of
from harness.store.wake import Wake


class Store:
    """All SQL of one PostgreSQL schema. Lock order everywhere: fence → inbox → letters → audit."""

    def __init__(self, schema: str) -> None:
        self.schema, self.forms = schema, Forms()
        tables = tables_of(schema)
        self.fence = Fence(tables.processed_jobs)
        self.order = Order(tables.inbox, tables.dead_letters, tables.order_places, tables.processed_jobs)
        self.wake = Wake(self.order, schema)
        self.inbox = Inbox(tables.inbox, tables.processed_jobs, self.order)
        self.letters = DeadLetters(tables.dead_letters)
        self.audit = Audit(tables.audit_log)
        self.presence = Presence(tables.presence)
        self.conflicts = Conflicts(
            tables.processed_jobs.fullname, tables.dead_letters.fullname, tables.audit_log.fullname
        )
        generation = tables.inbox.info["generation"]
        self.enqueueing = Enqueueing(
            tables.inbox.fullname, tables.processed_jobs.fullname, f"{schema}.{generation.name}"
        )

    @staticmethod
    @lru_cache
    def of(schema: str) -> "Store":
        """The store of a schema; statements are built once per process."""
        return Store(schema)

    def with_forms(self, forms: Forms) -> "Store":
        """The same store, for an app whose handlers are known: it tells one content from another by `forms`."""
        made = copy(self)
        made.forms = forms
        return made
