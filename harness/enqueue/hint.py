"""After the caller's commit the relays are told that there is something to send: a hint, which may be lost.

Not inside of the transaction: a NOTIFY there makes all commits of the database wait for one another. It goes out on the
caller's own connection, when the commit has been answered. Who has a Connection only gives no such moment: those rows
are found by the relay's next poll.
"""

import logging
from typing import Any

from psycopg2.extensions import connection as PgConnection
from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session

log = logging.getLogger("harness")
_PENDING = "harness_hints"


def after_commit(session: Session, connection: Connection, channel: str, service: str) -> None:
    """Notify `channel` once this transaction of `session`, which works on `connection`, has committed."""
    if _PENDING not in session.info:
        session.info[_PENDING] = {}
        event.listen(session, "after_commit", _committed)
    pending: dict[tuple[str, str], Connection] = session.info[_PENDING]
    pending[channel, service] = connection


def _committed(session: Session) -> None:
    pending: dict[tuple[str, str], Connection] = session.info[_PENDING]
    if any(connection.in_transaction() for connection in pending.values()):
        return  # a savepoint, or the session is within somebody else's transaction
    while pending:
        (channel, service), connection = pending.popitem()
        try:
            _notify(connection, {"channel": channel, "service": service})
        except Exception as error:
            log.debug("the relay was not woken (%s): it looks by itself", error)


def _notify(connection: Connection, values: dict[str, str]) -> None:
    raw: Any = connection.connection.dbapi_connection
    if not isinstance(raw, PgConnection):
        with connection.begin():
            connection.execute(text("SELECT pg_notify(:channel, :service)"), values)
        return
    # One round trip instead of three, for BEGIN and COMMIT are left out.
    before, raw.autocommit = raw.autocommit, True
    try:
        with raw.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%(channel)s, %(service)s)", values)
    finally:
        raw.autocommit = before
