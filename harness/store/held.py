"""What keeps jobs with an ordering key from running although it is their turn: transactions, or a restore."""

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from harness.store.order import HELD_BY_TRANSACTION
from harness.store.store import Store

_TRANSACTIONS = """
    SELECT concat_ws(', ', 'pid ' || pid, 'user ' || usename, nullif(application_name, ''), state) AS who,
           extract(epoch FROM clock_timestamp() - xact_start) AS age
    FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    UNION ALL
    SELECT 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared) FROM pg_prepared_xacts
    ORDER BY age DESC NULLS LAST LIMIT 3
"""


@dataclass(frozen=True, slots=True)
class OrderHeld:
    """`held`: jobs that wait for a transaction to end; `for_seconds`: the longest. `ahead`: from another cluster.

    `transactions`: the oldest ones that have written, as far as this role may see them.
    """

    held: int
    for_seconds: float
    transactions: tuple[str, ...]
    ahead: int


def order_held(session: Session, store: Store, service: str) -> OrderHeld:
    """Look through the inbox of a service."""
    query = f"""
        SELECT count(*), coalesce(extract(epoch FROM max(clock_timestamp() - greatest(created_at, available_at))), 0)
        FROM {store.inbox.table.fullname} WHERE service = :service AND relay_error = :held"""
    count, seconds = session.execute(text(query), {"service": service, "held": HELD_BY_TRANSACTION}).one()
    found = session.execute(text(_TRANSACTIONS)) if count else ()
    said = tuple(f"{row.who}, for {row.age or 0:.0f} s" for row in found)
    return OrderHeld(count, float(seconds), said, store.order.ahead(session, service))
