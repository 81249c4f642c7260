"""Passes the turn on: when a job of a key has ended, its successor is due, and the relays are told at once.

It is a hint, sent after the commit, on the same connection: a NOTIFY inside of a transaction makes commits wait for one
another. Where it is lost (the process dies in between, the database is away) `mend` finds the successor by itself.
"""

import logging
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from harness.store.database import Database
from harness.store.dispatch import of_row
from harness.store.order import WAITS_ITS_TURN, Order
from harness.store.schema import DUE, PRIORITY_CLASS

log = logging.getLogger("harness")
#: So many rows of a priority class are looked at to see whether one is due.
A_FEW = 20


def channel(schema: str) -> str:
    """The name under which the relays of a schema listen; the payload is the service."""
    return f"harness_{schema}"[:63]


class Wake:
    """The SQL of passing on."""

    def __init__(self, order: Order, schema: str) -> None:
        inbox = order.inbox.fullname
        self.channel = channel(schema)
        # No trouble where the successor is locked: the relay has it in hand.
        self._next = f"""WITH head AS (
                SELECT id, relay_error, leased_until FROM {inbox}
                WHERE service = %(service)s AND ordering_key = %(key)s AND sequence IS NOT NULL
                ORDER BY xid, sequence LIMIT 1
            ), free AS (
                SELECT i.id FROM {inbox} i JOIN head USING (id)
                WHERE i.relay_error = '{WAITS_ITS_TURN}' FOR UPDATE OF i SKIP LOCKED
            ), due AS (
                UPDATE {inbox} i SET leased_until = NULL, relay_error = NULL FROM free
                WHERE i.id = free.id AND i.relay_error = '{WAITS_ITS_TURN}' RETURNING i.id
            )
            SELECT pg_notify('{self.channel}', %(service)s) FROM head
            WHERE EXISTS (SELECT 1 FROM due) OR (head.relay_error IS NULL AND head.leased_until IS NULL)
        """
        # A few entries of the index for each class: where there are more, somebody among them is likely to be due.
        self._waiting = f"""SELECT pg_notify('{self.channel}', %(service)s) WHERE EXISTS (
                SELECT 1 FROM generate_series(0, 9) c CROSS JOIN LATERAL (
                    SELECT bool_or(few.due <= now()) OR count(*) = {A_FEW} AS likely FROM (
                        SELECT {of_row("i", DUE)} AS due FROM {inbox} i
                        WHERE i.service = %(service)s AND {of_row("i", PRIORITY_CLASS)} = c
                          AND i.consumer = %(consumer)s
                        ORDER BY coalesce(i.tenant, ''), {of_row("i", DUE)} LIMIT {A_FEW}
                    ) few
                ) lane WHERE lane.likely
            )
        """
        heads = f"""
            WITH RECURSIVE keys AS (
                (SELECT ordering_key, 1 AS n FROM {inbox}
                 WHERE service = :service AND sequence IS NOT NULL AND ordering_key > :after
                 ORDER BY ordering_key LIMIT 1)
                UNION ALL
                SELECT x.ordering_key, k.n + 1 FROM keys k CROSS JOIN LATERAL (
                    SELECT i.ordering_key FROM {inbox} i
                    WHERE i.service = :service AND i.sequence IS NOT NULL AND i.ordering_key > k.ordering_key
                    ORDER BY i.ordering_key LIMIT 1
                ) x WHERE k.n < :most
            ), heads AS (
                SELECT h.* FROM keys k CROSS JOIN LATERAL (
                    SELECT i.id, i.service, i.ordering_key, i.xid, i.sequence, i.relay_error FROM {inbox} i
                    WHERE i.service = :service AND i.ordering_key = k.ordering_key AND i.sequence IS NOT NULL
                    ORDER BY i.xid, i.sequence LIMIT 1
                ) h
            )"""
        self._mend = {
            blocks: text(
                f"""{heads}, stuck AS (
                    SELECT i.id FROM {inbox} i JOIN heads h ON h.id = i.id
                    WHERE h.relay_error = '{WAITS_ITS_TURN}' AND {order.is_free("h")} AND {order.is_first("h", blocks)}
                    FOR UPDATE OF i SKIP LOCKED
                ), mended AS (
                    UPDATE {inbox} i SET leased_until = NULL, relay_error = NULL FROM stuck
                    WHERE i.id = stuck.id RETURNING i.id
                )
                SELECT (SELECT max(ordering_key) FROM keys) AS last, (SELECT count(*) FROM keys) AS looked,
                    (SELECT count(*) FROM mended) AS mended
                """
            )
            for blocks in (False, True)
        }
        self.order = order

    def next_of(self, database: Database, service: str, ordering_key: str) -> None:
        """Have the oldest job of a key due, if it waits for its turn, and wake the relays.

        To be called after the commit of what was before it. One round trip; never raises.
        """
        self._alone(database, self._next, {"service": service, "key": ordering_key})

    def room_for(self, database: Database, service: str, consumer: str) -> None:
        """Wake the relays if rows of a consumer may be due, of which one is in flight no more.

        One round trip; never raises.
        """
        self._alone(database, self._waiting, {"service": service, "consumer": consumer})

    @staticmethod
    def _alone(database: Database, sql: str, parameters: dict[str, Any]) -> None:
        try:
            with database.engine.connect() as connection:
                raw: Any = connection.connection.dbapi_connection
                raw.alone(sql, parameters)
        except Exception as error:
            log.debug("the relay was not woken (%s): it looks by itself", error)

    def mend(self, session: Session, service: str, after: str, most: int) -> tuple[str, int]:
        """Find the successors that nobody has passed the turn to, in up to `most` keys behind the key `after`.

        Returns where to go on ("" for the beginning) and how many it has found. One probe of the index for each key,
        however many rows it has.
        """
        sql = self._mend[self.order.has_places(session)]
        row = session.execute(sql, {"service": service, "after": after, "most": most}).one()
        return (row.last if row.looked >= most else ""), row.mended
