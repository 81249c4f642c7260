"""What the relay sends next: by priority, in turn for every job and tenant, in order for each ordering key.

All rows of one consumer and tenant are a lane. Inside of a priority class each lane with something due gets the same
share of a batch, so that nobody's backlog starves another. Lanes are found by jumping from one to the next in
`inbox_lanes_idx`, so that a poll costs a few probes of the index for each lane and reads no more rows than it may
lease, however many wait.

A row with a place (see `order`) is looked at when it is due. Where it has not its turn it stands back until the one
before it passes the turn on, so that it is looked at once and not at every poll. A claim whose time is over has had its
turn: nothing of it runs any more, only its letter is to be written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Table, text
from sqlalchemy.orm import Session

from harness.store.order import HELD_BY_TRANSACTION, WAITS_ITS_TURN, Order
from harness.store.schema import DUE, PRIORITY_CLASS

#: Seconds that a row stands back whose turn it is not; a part of it at random, so that not all come back at once.
STANDS_BACK = 3600.0
#: The longest that a row is left alone which is held by an open transaction; it begins with milliseconds.
HELD = 10.0
#: How many times as many rows are looked at while most have not their turn.
DEEP = 10
CLASSES = range(10)


@dataclass
class Cursor:
    """Where each priority class goes on with the next batch: behind the lane (consumer, tenant) served last."""

    lanes: dict[int, tuple[str, str]] = field(default_factory=dict)
    #: Rows that the last batch looked at, also those that were not leased.
    looked: int = 0
    #: Most of them had not their turn: look at more rows the next time.
    deep: bool = False


@dataclass(frozen=True, slots=True)
class Caps:
    """The most rows of a consumer that may be in flight: with the broker or at work. `default` for the others."""

    of: Mapping[str, int] = field(default_factory=dict)
    default: int | None = None

    def __bool__(self) -> bool:
        return bool(self.of) or self.default is not None

    def holds(self, consumer: str) -> bool:
        """Does a limit hold for this one?"""
        return self.default is not None or consumer in self.of


class Dispatch:
    """The SQL of leasing."""

    def __init__(self, inbox: Table, order: Order) -> None:
        self.inbox, self.order = inbox, order
        names = [column.name for column in inbox.c if column.name != "expires_at"]
        self._sql = {blocks: text(self._lease(names, blocks)) for blocks in (False, True)}

    def _lease(self, names: list[str], blocks: bool) -> str:
        inbox, order = self.inbox.fullname, self.order
        due, tenant = of_row("i", DUE), "coalesce(i.tenant, '')"
        lane = f"(i.consumer, {tenant})"
        of_class = f"i.service = :service AND {of_row('i', PRIORITY_CLASS)}"
        next_lane = f"SELECT i.consumer, {tenant} AS tenant, {due} AS due"
        by_lane = f"ORDER BY i.consumer, {tenant}, {due} LIMIT 1"
        return f"""
        SET LOCAL enable_seqscan = off;
        -- At once, not after the weaker lock of a look at it: a migration that waits in between would be a deadlock.
        LOCK TABLE {inbox} IN ROW EXCLUSIVE MODE;
        WITH RECURSIVE lanes AS (
            SELECT s.ord, s.class, s.consumer AS first_consumer, s.tenant AS first_tenant, s.consumer, s.tenant,
                CAST(NULL AS timestamptz) AS due, false AS again, 0 AS n
            FROM json_to_recordset(CAST(:classes AS json)) AS s(ord int, class int, consumer text, tenant text)
            UNION ALL
            SELECT l.ord, l.class, l.first_consumer, l.first_tenant, x.consumer, x.tenant, x.due, x.again, l.n + 1
            FROM lanes l CROSS JOIN LATERAL (
                ({next_lane}, l.again FROM {inbox} i
                 WHERE {of_class} = l.class AND {lane} > (l.consumer, l.tenant)
                   AND (NOT l.again OR {lane} <= (l.first_consumer, l.first_tenant)) {by_lane})
                UNION ALL
                ({next_lane}, true FROM {inbox} i
                 WHERE NOT l.again AND {of_class} = l.class
                   AND {lane} <= (l.first_consumer, l.first_tenant) {by_lane})
                LIMIT 1
            ) x WHERE l.n < :lanes
        ), open_lanes AS (
            SELECT l.*, greatest(1, ceil(:look / CAST(count(*) OVER (PARTITION BY l.ord) AS numeric)))::int AS share
            FROM lanes l WHERE l.n > 0 AND l.due <= now()
        ), rooms AS MATERIALIZED (
            SELECT c.consumer, c.most - (
                SELECT count(*) FROM (
                    SELECT 1 FROM {inbox} i WHERE i.service = :service AND i.consumer = c.consumer
                      AND i.leased_until IS NOT NULL AND i.relay_error IS NULL AND i.leased_until > now() LIMIT c.most
                ) f) AS room
            FROM (
                SELECT o.consumer, coalesce(k.most, :default) AS most
                FROM (SELECT DISTINCT consumer FROM open_lanes WHERE :capped) o
                LEFT JOIN json_to_recordset(CAST(:caps AS json)) AS k(consumer text, most int) USING (consumer)
            ) c WHERE c.most IS NOT NULL
        ), due AS MATERIALIZED (
            SELECT r.*, o.ord, o.n, o.class, o.tenant AS lane_tenant, o.room
            FROM (
                SELECT l.*, m.room FROM open_lanes l LEFT JOIN rooms m USING (consumer) ORDER BY l.ord, l.n
            ) o CROSS JOIN LATERAL (
                SELECT i.id, i.service, i.consumer, i.job_id, i.ordering_key, i.xid, i.sequence, i.created_at,
                    i.available_at
                FROM {inbox} i
                WHERE {of_class} = o.class AND i.consumer = o.consumer AND {tenant} = o.tenant AND {due} <= now()
                ORDER BY {due} LIMIT greatest(0, least(o.share, o.room)) FOR UPDATE OF i SKIP LOCKED
            ) r LIMIT :look
        ), judged AS MATERIALIZED (
            SELECT d.*, CASE
                WHEN d.sequence IS NULL THEN 'go'
                WHEN NOT ({order.is_first("d", blocks)} AND {order.is_free("d")})
                THEN CASE WHEN {order.is_claim("d")} THEN 'go' ELSE 'back' END
                WHEN d.xid >= pg_snapshot_xmin(pg_current_snapshot()) THEN 'held'
                ELSE 'go' END AS turn
            FROM due d
        ), chosen AS (
            SELECT j.*, row_number() OVER (PARTITION BY j.turn ORDER BY j.ord, j.n, j.available_at) AS nth,
                row_number() OVER (PARTITION BY j.turn, j.consumer ORDER BY j.ord, j.n, j.available_at) AS of_consumer
            FROM judged j
        )
        UPDATE {inbox} AS i SET
            leased_until = CASE c.turn
                WHEN 'go' THEN clock_timestamp()
                    + least(:lease * power(2, least(i.dispatches, 30)), :longest) * interval '1 second'
                WHEN 'back' THEN now() + {STANDS_BACK} * (0.75 + random() / 2) * interval '1 second'
                ELSE now() + least({HELD}, greatest(0.02,
                    extract(epoch FROM now() - greatest(c.created_at, c.available_at)) / 4)) * interval '1 second' END,
            relay_error = CASE c.turn WHEN 'back' THEN '{WAITS_ITS_TURN}' WHEN 'held' THEN '{HELD_BY_TRANSACTION}' END,
            dispatches = i.dispatches + CASE WHEN c.turn = 'go' THEN 1 ELSE 0 END,
            -- An expired lease is no proof of a start: only the first dispatch of a generation counts here.
            deliveries = i.deliveries
                + CASE WHEN c.turn = 'go' THEN least(1, greatest(0, 1 - i.dispatches)) ELSE 0 END
        FROM chosen c
        WHERE i.id = c.id AND (c.turn <> 'go' OR (c.nth <= :limit AND (c.room IS NULL OR c.of_consumer <= c.room)))
        RETURNING {", ".join(f"i.{name}" for name in names)}, c.turn, c.ord, c.n, c.class, c.lane_tenant
        """

    def lease(
        self,
        session: Session,
        service: str,
        *,
        limit: int,
        lease: float,
        longest: float,
        highest_first: bool,
        caps: Caps,
        cursor: Cursor,
        lanes: int = 1000,
    ) -> list[Any]:
        """Lease up to `limit` rows of a service that are due; the rows, in the order in which they are to be sent.

        `lanes`: of each class so many are looked at, beginning behind those that the last batch served.
        """
        if caps and not self._alone(session, service):
            caps = Caps(dict.fromkeys(caps.of, 0), None if caps.default is None else 0)
        look = limit * DEEP if cursor.deep else limit
        classes = list(reversed(CLASSES) if highest_first else CLASSES)
        starts = [
            {"ord": n, "class": one, **dict(zip(("consumer", "tenant"), cursor.lanes.get(one, ("", "")), strict=True))}
            for n, one in enumerate(classes)
        ]
        found = session.execute(
            self._sql[self.order.has_places(session)],
            {
                "classes": json.dumps(starts),
                "caps": json.dumps([{"consumer": consumer, "most": most} for consumer, most in caps.of.items()]),
                "default": caps.default,
                "capped": bool(caps),
                "service": service,
                "limit": limit,
                "look": look,
                "lanes": lanes,
                "lease": lease,
                "longest": longest,
            },
        ).all()
        cursor.looked = len(found)
        for row in sorted(found, key=lambda row: row.n):
            cursor.lanes[row._mapping["class"]] = (row.consumer, row.lane_tenant)
        sent = [row for row in found if row.turn == "go"]
        cursor.deep = len(found) >= look and len(sent) < limit / 2
        return sorted(sent, key=lambda row: (row.ord, row.available_at, row.id))

    def _alone(self, session: Session, service: str) -> bool:
        """Be the only relay of the service that counts what is in flight, until this transaction ends."""
        name = f"{self.inbox.fullname}:caps:{service}"
        query = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:name, 0))")
        return bool(session.scalar(query, {"name": name}))


def of_row(row: str, expression: str) -> str:
    """An expression of the schema's, for a table that is called `row`."""
    for name in ("leased_until", "available_at", "priority"):
        expression = expression.replace(name, f"{row}.{name}")
    return expression
